"""What the cluster-controller reports of its workers, and when."""

import pytest
from msgspec import structs

from agents.cluster.events import BusBack, BusLost, WholeAsked, WorkerHeard
from agents.cluster.reports import split
from agents.cluster.state import Rules
from messages.clusters import Presence
from messages.codec import encode, wrap
from messages.ids import JobName, Rank
from messages.workers import TrainerExit, WorkerPhase
from tests.cluster.builders import JOB, OTHER_JOB, a_controller, a_controller_with, a_status


class TestTopology:
    def test_a_worker_is_starting_until_it_speaks_and_then_has_its_real_id(self) -> None:
        story = a_controller().keeps(1).after(0.1)
        uid = story.uids[0]
        assert story.presence(f"{uid}-0000") is Presence.STARTING
        story.speaks(uid)
        assert story.presence(f"{uid}-0000") is None
        assert story.presence(f"{uid}-aaaa") is Presence.ALIVE

    def test_is_sent_every_second_with_a_seq_that_grows_by_one(self) -> None:
        story = a_controller_with(1).after(10.0, all_beat=True)
        seqs = [heartbeat.seq for heartbeat in story.topologies]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert 9 <= len(seqs) <= 12

    def test_is_sent_at_once_when_a_worker_is_gone_and_says_so(self) -> None:
        story = a_controller_with(2).after(0.5)
        lost = story.uids[0]
        why = "its process was ended by SIGKILL"
        story.forgets_effects().ends(lost, why)
        observation = story.observation(f"{lost}-aaaa")
        assert observation is not None and observation.presence is Presence.GONE and observation.why == why

    @pytest.mark.parametrize(
        "changed",
        [
            {"phase": WorkerPhase.READY},
            {"generation": 4},
            {"notice_s": 15.0},
        ],
    )
    def test_is_sent_at_once_when_a_status_changes_in_what_matters(self, changed: dict[str, object]) -> None:
        story = a_controller_with(1).after(0.5, all_beat=True).forgets_effects()
        story.now_s += 0.1
        status = structs.replace(a_status(f"{story.uids[0]}-aaaa", 99), **changed)
        assert len(story.happens(WorkerHeard(story.now_s, status)).topologies) == 1

    def test_waits_in_a_large_cluster_if_only_statuses_changed_and_not_for_a_loss(self) -> None:
        story = a_controller_with(1, rules=Rules(status_gap_of_worker_s=1.0)).after(1.0).forgets_effects()
        story.speaks(story.uids[0], WorkerPhase.READY).now_s += 0.1
        story.forgets_effects().speaks(story.uids[0], WorkerPhase.PARKED)
        assert story.topologies == []
        lost = f"{story.uids[0]}-aaaa"
        story.ends(story.uids[0])
        observation = story.observation(lost)
        assert observation is not None and observation.presence is Presence.GONE

    def test_of_changed_statuses_waits_no_longer_than_its_limit(self) -> None:
        rules = Rules(status_gap_of_worker_s=1.0, status_gap_most_s=0.3)
        story = a_controller_with(1, rules=rules).after(1.0).forgets_effects()
        story.speaks(story.uids[0], WorkerPhase.READY).now_s += 0.1
        story.forgets_effects().speaks(story.uids[0], WorkerPhase.PARKED)
        assert story.topologies == []
        story.after(0.25)
        [topology] = story.topologies
        assert [each.status.phase for each in topology.workers if each.status is not None] == [WorkerPhase.PARKED]

    def test_a_step_or_a_running_notice_is_no_change(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(WorkerHeard(story.now_s, a_status(worker, 50, step=1, notice_s=15.0))).after(0.1)
        story.forgets_effects()
        story.happens(WorkerHeard(story.now_s, a_status(worker, 51, step=2, notice_s=14.0)))
        assert story.topologies == []
        story.after(1.1)
        assert story.reports[-1].workers == () and story.view.steps == {JOB: 2}

    def test_changes_that_come_together_travel_together(self) -> None:
        story = a_controller().keeps(50).after(0.5).forgets_effects()
        story.all_speak().after(0.1)
        assert len(story.topologies) <= 3
        assert all(observation.presence is Presence.ALIVE for observation in story.topologies[-1].workers)

    def test_tells_how_many_it_was_told_to_keep(self) -> None:
        assert a_controller().keeps(3).keeps(0, OTHER_JOB).after(0.1).topologies[-1].keeps == {JOB: 3}

    def test_the_gone_are_told_for_a_while_and_then_no_more(self) -> None:
        story = a_controller_with(1).keeps(0)
        lost = story.uids[0]
        story.ends(lost).after(50.0)
        assert story.presence(f"{lost}-aaaa") is Presence.GONE
        assert story.after(15.0).presence(f"{lost}-aaaa") is None

    def test_the_gone_that_are_told_and_remembered_are_bounded(self) -> None:
        story = a_controller(rules=Rules(gone_at_most=10, tombstones_at_most=30)).keeps(1)
        for _ in range(60):
            story.speaks(story.uids[0]).ends(story.uids[0])
        story.after(0.1)
        gone = [observation for observation in story.topologies[-1].workers if observation.presence is Presence.GONE]
        assert len(gone) == 10 and len(story.state.tombstones) == 30

    def test_jobs_that_ended_long_ago_are_forgotten_first(self) -> None:
        story = a_controller(rules=Rules(ended_jobs_at_most=3))
        for number in range(10):
            story.keeps(0, JobName(f"job{number}"))
        story.keeps(1).after(0.1)
        assert list(story.state.wanted) == ["job7", "job8", "job9", JOB]

    def test_what_does_not_fit_into_a_message_comes_in_parts(self) -> None:
        story = a_controller_with(200)
        tail = tuple("x" * 100 for _ in range(100))
        for uid in story.uids:
            exits = (TrainerExit(Rank(0), code=1, tail=tail),)
            failed = structs.replace(a_status(f"{uid}-aaaa", 50, WorkerPhase.ENDED), exits=exits)
            story.happens(WorkerHeard(story.now_s, failed))
        story.happens(WholeAsked(story.now_s)).after(1.0)
        parts = split(max(story.reports, key=lambda report: len(report.workers)))
        assert len(parts) > 5
        assert all(len(encode(wrap(part, sender="cluster/local"))) < 300_000 for part in parts)
        statuses = [observation.status for part in parts for observation in part.workers]
        assert len(statuses) == 200 and all(status and status.exits[0].tail == tail for status in statuses)

    def test_is_not_sent_while_the_bus_is_away_and_at_once_when_it_is_back(self) -> None:
        story = a_controller_with(1).happens(BusLost(100.2)).forgets_effects().after(10.0)
        assert story.topologies == []
        assert len(story.happens(BusBack(story.now_s)).topologies) == 1
