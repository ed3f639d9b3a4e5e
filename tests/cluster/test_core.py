"""What the cluster-controller's core decides, one story a test."""

from dataclasses import replace
from itertools import pairwise

import pytest
from msgspec import structs

from agents.cluster.effects import EndPlace, SaveKnown
from agents.cluster.events import (
    BusBack,
    BusLost,
    KeepAsked,
    KnownSaved,
    LeaderSeen,
    PlaceEnded,
    PlaceFailed,
    PlaceStarted,
    RemoveAsked,
    SaveFailed,
    StopAsked,
    WorkerHeard,
    WorkerSaidLeft,
)
from agents.cluster.state import Rules
from agents.cluster.topology import topology
from messages.clusters import Answer, KeepWorkers, Presence, RemoveWorkers, WorkerTemplate
from messages.codec import MAX_BYTES, encode, wrap
from messages.ids import ClusterName, Epoch, JobName, Rank, WorkerId
from messages.workers import TrainerExit, WorkerPhase
from tests.cluster.builders import JOB, OTHER_JOB, Story, a_controller, a_controller_with, a_status, keep


def hears(story: Story, worker: str, seq: int = 1, phase: WorkerPhase = WorkerPhase.IDLE) -> Story:
    return story.happens(WorkerHeard(story.now_s, a_status(worker, seq, phase)))


class TestKeepingWorkers:
    def test_as_many_places_are_started_as_were_asked_for(self) -> None:
        story = a_controller().keeps(3)
        assert len(story.started) == 3
        assert story.answer is not None and story.answer.ok

    def test_saying_it_twice_is_saying_it_once(self) -> None:
        assert len(a_controller().keeps(3).keeps(3).after(5.0).started) == 3

    def test_a_place_is_saved_before_it_is_started(self) -> None:
        story = a_controller()
        story.saves = False
        story.keeps(1)
        assert story.started == []
        saved = [effect for effect in story.effects if isinstance(effect, SaveKnown)]
        story.happens(KnownSaved(story.now_s))
        assert story.uids[0] in {place.uid for effect in saved for place in effect.known.places}
        assert story.started == story.uids

    def test_nothing_is_started_while_the_record_cannot_be_saved_and_saving_is_tried_again(self) -> None:
        story = a_controller()
        story.saves = False
        story.keeps(1)
        story.forgets_effects().happens(SaveFailed(story.now_s, "no answer"))
        assert story.started == []
        story.saves = True
        story.after(1.0)
        assert len(story.started) == 1

    def test_more_are_started_when_more_are_asked_for(self) -> None:
        assert len(a_controller_with(2).keeps(5).started) == 3

    def test_a_lower_count_ends_nobody(self) -> None:
        story = a_controller_with(4).keeps(1).after(5.0, all_beat=True)
        assert story.ended == []
        assert story.topologies[-1].keeps == {JOB: 1}

    def test_but_what_was_only_planned_is_dropped(self) -> None:
        story = a_controller()
        story.saves = False
        story.keeps(4).keeps(1)
        story.saves = True
        story.happens(KnownSaved(story.now_s)).after(1.0)
        assert len(story.started) == 1

    def test_a_count_of_zero_ends_all_workers_of_the_job_and_of_no_other(self) -> None:
        story = a_controller_with(2).keeps(2, OTHER_JOB).forgets_effects()
        own = [place.uid for place in story.places if place.job == JOB]
        assert story.keeps(0).ended == own

    def test_a_place_that_is_just_being_started_is_ended_when_it_has(self) -> None:
        story = a_controller()
        story.starts = False
        story.keeps(1).keeps(0)
        assert story.ended == []
        story.happens(PlaceStarted(story.now_s, story.uids[0], 7))
        assert story.ended == story.uids

    def test_an_end_that_is_not_confirmed_is_asked_for_again(self) -> None:
        story = a_controller_with(1).keeps(0).after(40.0, all_beat=True)
        assert story.ended.count(story.uids[0]) >= 2

    def test_an_ended_worker_of_a_job_that_needs_none_is_not_replaced(self) -> None:
        story = a_controller_with(1).keeps(0)
        assert story.ends(story.uids[0]).after(60.0).started == []

    def test_workers_are_counted_for_each_job_by_itself(self) -> None:
        story = a_controller_with(2).keeps(1, OTHER_JOB).after(5.0)
        assert [place.job for place in story.places].count(OTHER_JOB) == 1


class TestReplacing:
    def test_a_lost_worker_that_had_joined_is_replaced_at_once(self) -> None:
        story = a_controller_with(3)
        lost = story.uids[0]
        story.ends(lost)
        assert len(story.started) == 1 and lost not in story.started

    def test_places_that_die_young_are_started_ever_more_slowly(self) -> None:
        story = a_controller().keeps(1)
        starts: list[float] = []
        for _ in range(400):
            if len(story.started) > len(starts):
                starts.append(story.now_s)
                story.ends(story.uids[-1], "its process exited with 1")
            story.after(0.25)
        pauses = [later - earlier for earlier, later in pairwise(starts)]
        assert pauses[0] <= 0.75
        assert pauses == sorted(pauses)
        assert max(pauses) <= 30.5 and pauses[-1] > 20.0

    def test_several_that_die_young_together_count_once(self) -> None:
        story = a_controller().keeps(4)
        for uid in story.uids:
            story.ends(uid, "its process exited with 1")
        assert story.state.backoffs[JOB].delay_s == story.state.rules.backoff_s

    def test_a_start_that_fails_is_tried_again_later(self) -> None:
        story = a_controller()
        story.starts = False
        story.keeps(1).happens(PlaceFailed(story.now_s, story.uids[0], "no such interpreter"))
        assert len(story.started) == 1
        gone = story.after(0.1).topologies[-1].workers[0]
        assert gone.presence is Presence.GONE and "no such interpreter" in gone.why
        assert len(story.after(1.0).started) == 2

    def test_one_that_lived_ends_the_backoff(self) -> None:
        story = a_controller().keeps(1)
        story.ends(story.uids[0]).after(1.0)
        assert story.state.backoffs[JOB].delay_s > 0
        story.after(12.0, all_beat=True).ends(story.uids[0])
        assert story.state.backoffs[JOB].delay_s == 0 and len(story.uids) == 1

    def test_a_worker_that_leaves_is_replaced_before_its_process_is_gone(self) -> None:
        story = a_controller_with(2)
        leaver = story.uids[0]
        story.happens(WorkerSaidLeft(story.now_s, WorkerId(f"{leaver}-aaaa"), "noticed"))
        assert len(story.started) == 1
        assert story.ends(leaver).after(5.0, all_beat=True).started == story.started[:1]

    def test_a_worker_under_notice_is_replaced_while_it_still_works(self) -> None:
        story = a_controller_with(2)
        status = a_status(f"{story.uids[0]}-aaaa", 50, WorkerPhase.READY, notice_s=15.0)
        assert len(story.happens(WorkerHeard(story.now_s, status)).started) == 1

    def test_a_place_whose_worker_never_speaks_is_ended_and_replaced(self) -> None:
        story = a_controller().keeps(1)
        mute = story.uids[0]
        story.after(61.0)
        assert story.ended == [mute]
        assert len(story.started) == 2

    def test_a_worker_that_left_but_whose_process_stays_is_ended(self) -> None:
        story = a_controller_with(1)
        leaver = story.uids[0]
        story.happens(WorkerSaidLeft(story.now_s, WorkerId(f"{leaver}-aaaa"), "released")).after(5.0)
        assert story.ended == []
        assert story.after(6.0).ended == [leaver]


class TestRemoving:
    def test_exactly_those_are_ended(self) -> None:
        story = a_controller_with(3)
        doomed = story.uids[1]
        assert story.removes(f"{doomed}-aaaa").ended == [doomed]

    def test_they_are_not_replaced_until_the_count_is_said_again(self) -> None:
        story = a_controller_with(3)
        doomed = story.uids[1]
        story.removes(f"{doomed}-aaaa").ends(doomed).after(5.0, all_beat=True)
        assert story.started == [] and story.topologies[-1].keeps == {JOB: 2}
        assert len(story.keeps(3).started) == 1

    def test_surplus_workers_are_removed_without_lowering_the_count_further(self) -> None:
        story = a_controller_with(4).keeps(3)
        story.removes(f"{story.uids[0]}-aaaa").after(0.1)
        assert story.topologies[-1].keeps == {JOB: 3}

    def test_a_place_that_was_known_only_as_starting_is_found_by_its_uid(self) -> None:
        story = a_controller_with(1)
        assert story.removes(f"{story.uids[0]}-0000").ended == story.uids

    @pytest.mark.parametrize("worker", ["wabc123x1-bbbb", "stranger-aaaa", "nonsense"])
    def test_workers_that_are_not_there_are_removed_already(self, worker: str) -> None:
        story = a_controller_with(1).removes(worker)
        assert story.ended == [] and story.answer is not None and story.answer.ok

    def test_a_worker_of_another_job_is_left_alone(self) -> None:
        story = a_controller_with(1)
        assert story.removes(f"{story.uids[0]}-aaaa", job=OTHER_JOB).ended == []


class TestWhoLeads:
    def test_a_bus_that_lost_its_data_counts_epochs_anew(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(223))).keeps(1, epoch=223)
        story.happens(LeaderSeen(101.0, Epoch(19))).keeps(2, epoch=19)
        assert story.answer == Answer(ok=True)
        assert (story.state.wanted[JOB].count, story.saved.epoch) == (2, 19)
        assert not answered(story.keeps(3, epoch=223)).ok, "who led on the old bus does not lead here"

    def test_what_was_obeyed_before_a_leader_was_known_is_no_fence_for_it(self) -> None:
        forged = a_controller().keeps(1, epoch=2**52).saved
        story = a_controller(known=forged).happens(LeaderSeen(100.0, Epoch(5)))
        assert answered(story.keeps(2, epoch=5)).ok

    def test_of_two_living_masters_the_older_is_over_once_the_newer_has_spoken(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(5))).keeps(1, epoch=5)
        story.happens(LeaderSeen(101.0, Epoch(9))).keeps(2, epoch=9)
        assert "epoch 5 is over" in answered(story.keeps(3, epoch=5)).why

    def test_a_claim_that_is_renewed_leaves_its_master_in_the_lead(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(5))).keeps(1, epoch=5)
        assert answered(story.happens(LeaderSeen(101.0, Epoch(8))).keeps(2, epoch=5)).ok


def answered(story: Story) -> Answer:
    assert story.answer is not None
    return story.answer


class TestCommandsThatAreRefused:
    def refused(self, story: Story, command: KeepWorkers | RemoveWorkers, epoch: int = 1) -> str:
        before = story.state
        if isinstance(command, KeepWorkers):
            story.happens(KeepAsked(story.now_s, command, Epoch(epoch)))
        else:
            story.happens(RemoveAsked(story.now_s, command, Epoch(epoch)))
        assert story.answer is not None and not story.answer.ok
        assert (story.state.wanted, story.state.epoch) == (before.wanted, before.epoch)
        assert story.started == [] and story.ended == []
        return story.answer.why

    @pytest.mark.parametrize("count", [-1, 257, 10**12])
    def test_a_count_that_makes_no_sense(self, count: int) -> None:
        assert str(count) in self.refused(a_controller(), keep(count))

    def test_more_than_there_is_room_for_beside_other_jobs(self) -> None:
        story = a_controller(rules=Rules(max_workers=4)).keeps(3, OTHER_JOB).forgets_effects()
        assert "room for 4" in self.refused(story, keep(2))

    @pytest.mark.parametrize("job", ["", "No Such.Name", "x" * 64])
    def test_a_name_that_no_job_can_have(self, job: str) -> None:
        assert "not the name of a job" in self.refused(a_controller(), keep(1, JobName(job)))

    @pytest.mark.parametrize(
        "template",
        [
            WorkerTemplate(slots=0),
            WorkerTemplate(slots=65),
            WorkerTemplate(python=""),
            WorkerTemplate(env={"A=B": "1"}),
            WorkerTemplate(env={"A": "nul\0"}),
            WorkerTemplate(env={"A": "x" * 40_000}),
        ],
    )
    def test_a_template_that_no_process_can_be_started_from(self, template: WorkerTemplate) -> None:
        assert self.refused(a_controller(), keep(1, template=template))

    def test_environments_that_do_not_fit_into_the_record_together(self) -> None:
        story = a_controller()
        large = WorkerTemplate(env={"A": "x" * 31_000})
        for number in range(8):
            story.happens(KeepAsked(story.now_s, keep(1, JobName(f"job{number}"), large), Epoch(1)))
        story.forgets_effects()
        assert "all jobs together" in self.refused(story, keep(1, template=large))

    def test_a_master_of_an_older_epoch(self) -> None:
        story = a_controller().keeps(2, epoch=7).forgets_effects()
        assert "epoch 6 is over" in self.refused(story, keep(5), epoch=6)
        assert "epoch 6 is over" in self.refused(story, RemoveWorkers(JOB, (), ""), epoch=6)

    def test_a_command_without_an_epoch_once_a_leader_has_spoken(self) -> None:
        story = a_controller().keeps(2, epoch=7).forgets_effects().keeps(5, epoch=None)
        assert story.answer is not None and not story.answer.ok

    def test_the_epoch_outlives_the_controller(self) -> None:
        known = a_controller().keeps(0, epoch=7).saved
        assert "epoch 6 is over" in self.refused(a_controller(known=known), keep(5), epoch=6)

    def test_an_epoch_above_the_newest_claim_to_lead(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(7)))
        assert "the newest claim to lead is 7" in self.refused(story, keep(5), epoch=2**62)
        assert story.keeps(2, epoch=7).answer == Answer(ok=True)

    def test_too_many_workers_at_once(self) -> None:
        everybody = RemoveWorkers(JOB, tuple(WorkerId(f"w{n}-aaaa") for n in range(1001)), "")
        assert "at most 1000" in self.refused(a_controller(), everybody)

    def test_new_workers_while_it_stops(self) -> None:
        story = a_controller().happens(StopAsked(100.0, "SIGTERM"))
        assert "stopping" in self.refused(story, keep(1))


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
        story.forgets_effects().ends(lost, "its process was ended by SIGKILL")
        sight = story.sight(f"{lost}-aaaa")
        assert sight is not None and sight.presence is Presence.GONE and sight.why == "its process was ended by SIGKILL"

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

    def test_a_step_or_a_running_notice_is_no_change(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(WorkerHeard(story.now_s, a_status(worker, 50, step=1, notice_s=15.0))).after(0.1)
        digest = story.topologies[-1].digest
        story.forgets_effects()
        story.happens(WorkerHeard(story.now_s, a_status(worker, 51, step=2, notice_s=14.0)))
        assert story.topologies == []
        story.after(1.1)
        assert story.topologies[-1].digest == digest
        sight = story.sight(worker)
        assert sight is not None and sight.status is not None and sight.status.step == 2

    def test_another_digest_shows_another_topology(self) -> None:
        story = a_controller_with(2).after(1.0)
        before = story.topologies[-1].digest
        assert story.ends(story.uids[0]).topologies[-1].digest != before

    def test_changes_that_come_together_travel_together(self) -> None:
        story = a_controller().keeps(50).after(0.5).forgets_effects()
        story.all_speak().after(0.1)
        assert len(story.topologies) <= 3
        assert all(sight.presence is Presence.ALIVE for sight in story.topologies[-1].workers)

    def test_tells_how_many_it_was_told_to_keep(self) -> None:
        assert a_controller().keeps(3).keeps(0, OTHER_JOB).after(0.1).topologies[-1].keeps == {JOB: 3, OTHER_JOB: 0}

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
        gone = [sight for sight in story.topologies[-1].workers if sight.presence is Presence.GONE]
        assert len(gone) == 10 and len(story.state.tombstones) == 30

    def test_jobs_that_ended_long_ago_are_forgotten_first(self) -> None:
        story = a_controller(rules=Rules(ended_jobs_at_most=3))
        for number in range(10):
            story.keeps(0, JobName(f"job{number}"))
        story.keeps(1).after(0.1)
        assert list(story.topologies[-1].keeps) == ["job7", "job8", "job9", JOB]

    def test_what_does_not_fit_into_a_message_is_left_out(self) -> None:
        story = a_controller_with(200)
        tail = tuple("x" * 100 for _ in range(100))
        for uid in story.uids:
            exits = (TrainerExit(Rank(0), code=1, tail=tail),)
            failed = structs.replace(a_status(f"{uid}-aaaa", 50, WorkerPhase.ENDED), exits=exits)
            story.happens(WorkerHeard(story.now_s, failed))
        heartbeat = topology(story.state, story.now_s)
        assert len(encode(wrap(heartbeat, sender="cluster/local"))) < MAX_BYTES
        codes = {sight.status.exits[0].code for sight in heartbeat.workers if sight.status is not None}
        assert len(heartbeat.workers) == 200 and codes == {1}

    def test_is_not_sent_while_the_bus_is_away_and_at_once_when_it_is_back(self) -> None:
        story = a_controller_with(1).happens(BusLost(100.2)).forgets_effects().after(10.0)
        assert story.topologies == []
        assert len(story.happens(BusBack(story.now_s)).topologies) == 1


class TestSilence:
    def test_a_worker_is_silent_after_two_seconds_and_alive_when_it_speaks_again(self) -> None:
        story = a_controller_with(1).all_speak()
        worker = f"{story.uids[0]}-aaaa"
        assert story.after(1.9).presence(worker) is Presence.ALIVE
        sight = story.after(0.2).sight(worker)
        assert sight is not None and sight.presence is Presence.SILENT and 2.0 <= sight.silent_s < 2.3
        assert story.speaks(story.uids[0]).after(0.1).presence(worker) is Presence.ALIVE

    def test_is_no_reason_to_replace_or_end_a_worker(self) -> None:
        story = a_controller_with(2).after(300.0)
        assert story.started == [] and story.ended == []

    def test_does_not_count_while_the_bus_is_away(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(BusLost(story.now_s)).after(60.0).happens(BusBack(story.now_s))
        assert story.presence(worker) is Presence.ALIVE
        assert story.after(1.9).presence(worker) is Presence.ALIVE
        assert story.after(0.2).presence(worker) is Presence.SILENT

    def test_of_before_the_bus_went_away_lasts_until_the_worker_speaks(self) -> None:
        story = a_controller_with(1).after(10.0)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(BusLost(story.now_s)).after(5.0).happens(BusBack(story.now_s)).after(0.5)
        sight = story.sight(worker)
        assert sight is not None and sight.presence is Presence.SILENT and sight.silent_s < 1.0

    def test_a_word_that_was_heard_before_teaches_nothing(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        hears(story, worker, 9).after(2.5)
        assert hears(story, worker, 9).after(0.1).presence(worker) is Presence.SILENT
        assert hears(story, worker, 8).after(0.1).presence(worker) is Presence.SILENT
        assert hears(story, worker, 10).after(0.1).presence(worker) is Presence.ALIVE


class TestTheDead:
    def test_a_late_heartbeat_does_not_revive_a_worker_whose_process_ended(self) -> None:
        story = a_controller_with(1)
        lost = story.uids[0]
        story.ends(lost).speaks(lost).after(0.1)
        assert story.presence(f"{lost}-aaaa") is Presence.GONE and lost not in story.uids

    def test_nor_one_that_was_never_heard_while_it_lived(self) -> None:
        story = a_controller().keeps(1)
        lost = story.uids[0]
        story.ends(lost).speaks(lost)
        assert lost not in story.uids

    def test_nor_one_that_said_that_it_left(self) -> None:
        story = hears(a_controller(), "byhand-1234")
        story.happens(WorkerSaidLeft(story.now_s, WorkerId("byhand-1234"), "bye"))
        assert hears(story, "byhand-1234", 2).uids == []

    def test_nor_one_that_left_before_it_was_heard_of(self) -> None:
        story = a_controller().happens(WorkerSaidLeft(100.0, WorkerId("byhand-1234"), "bye"))
        assert hears(story, "byhand-1234").uids == []

    def test_a_worker_that_left_is_gone_once_not_twice(self) -> None:
        story = a_controller_with(1)
        worker = f"{story.uids[0]}-aaaa"
        story.happens(WorkerSaidLeft(story.now_s, WorkerId(worker), "released")).ends(story.uids[0]).after(0.1)
        sights = [sight for sight in story.topologies[-1].workers if sight.worker == worker]
        assert [sight.why for sight in sights] == ["released"]

    def test_an_agent_that_started_anew_in_its_place_is_another_worker(self) -> None:
        story = a_controller_with(1)
        uid = story.uids[0]
        hears(story, f"{uid}-bbbb").after(0.1)
        assert story.presence(f"{uid}-aaaa") is Presence.GONE
        assert story.presence(f"{uid}-bbbb") is Presence.ALIVE
        assert hears(story, f"{uid}-aaaa", 999).after(0.1).presence(f"{uid}-bbbb") is Presence.ALIVE

    def test_the_end_of_an_unknown_place_teaches_nothing(self) -> None:
        story = a_controller_with(1)
        before = story.state
        story.ends("w000000x1")
        assert (story.state.places, story.state.gone) == (before.places, before.gone)


class TestWorkersStartedByHand:
    def test_are_listed_and_counted(self) -> None:
        story = hears(a_controller(), "byhand-1234").keeps(3).after(0.1)
        assert len(story.started) == 2
        assert story.presence("byhand-1234") is Presence.ALIVE

    def test_are_asked_to_go_through_the_bus(self) -> None:
        story = hears(a_controller(), "byhand-1234").keeps(0)
        ends = [effect for effect in story.effects if isinstance(effect, EndPlace)]
        assert [effect.worker for effect in ends] == ["byhand-1234"]

    def test_are_forgotten_when_silent_for_long_without_calling_them_gone(self) -> None:
        story = hears(a_controller(), "byhand-1234").after(50.0)
        assert story.presence("byhand-1234") is Presence.SILENT
        assert story.after(12.0).presence("byhand-1234") is None
        assert hears(story, "byhand-1234", 2).after(0.1).presence("byhand-1234") is Presence.ALIVE

    def test_of_another_cluster_are_not_ours(self) -> None:
        status = a_status("byhand-1234", cluster=ClusterName("elsewhere"))
        assert a_controller().happens(WorkerHeard(100.0, status)).uids == []

    def test_are_listed_up_to_a_bound(self) -> None:
        story = a_controller(rules=Rules(max_places=5))
        for number in range(20):
            hears(story, f"byhand{number}-1234")
        assert len(story.uids) == 5

    def test_become_places_of_ours_when_the_shell_recognises_them(self) -> None:
        story = hears(a_controller(), "wabc000x3-1234").happens(PlaceStarted(100.0, "wabc000x3", 7, "b"))
        assert [place.uid for place in story.saved.places] == ["wabc000x3"]
        assert story.ends("wabc000x3").after(0.1).presence("wabc000x3-1234") is Presence.GONE


class TestRestart:
    def test_adopts_its_workers_and_starts_none(self) -> None:
        known = a_controller_with(3).saved
        story = a_controller(known=known, incarnation="def456")
        for place in known.places:
            story.happens(PlaceStarted(100.0, place.uid, place.pid, place.birth))
        story.after(10.0, all_beat=True)
        assert story.started == [] and story.ended == []
        assert sum(sight.presence is Presence.ALIVE for sight in story.topologies[-1].workers) == 3

    def test_reports_and_replaces_those_that_died_meanwhile_under_their_real_id(self) -> None:
        known = a_controller_with(2).saved
        dead, alive = known.places
        story = a_controller(known=known, incarnation="def456")
        story.happens(PlaceStarted(100.0, alive.uid, alive.pid), PlaceEnded(100.0, dead.uid, "it ended meanwhile"))
        assert story.after(0.1).presence(f"{dead.uid}-aaaa") is Presence.GONE
        assert len(story.started) == 1

    def test_a_worker_that_had_left_stays_gone_while_its_place_is_still_there(self) -> None:
        before = a_controller_with(1)
        worker = WorkerId(f"{before.uids[0]}-aaaa")
        known = before.happens(WorkerSaidLeft(before.now_s, worker, "released")).after(0.1).saved
        story = a_controller(known=known, incarnation="def456")
        story.happens(PlaceStarted(100.0, known.places[0].uid, known.places[0].pid, known.places[0].birth))
        assert hears(story, worker, 9).after(0.1).presence(worker) is Presence.GONE

    def test_claims_nothing_of_a_worker_that_has_not_spoken_to_it(self) -> None:
        known = a_controller_with(1).saved
        story = a_controller(known=known, incarnation="def456").after(1.0)
        assert story.topologies[-1].workers == ()
        assert story.speaks(known.places[0].uid).after(0.1).presence(f"{known.places[0].uid}-aaaa") is Presence.ALIVE

    def test_a_place_that_was_saved_but_never_started_is_replaced_under_a_new_uid(self) -> None:
        story = a_controller()
        story.starts = False
        known = story.keeps(1).saved
        assert known.places[0].pid == 0
        again = a_controller(known=known, incarnation="def456").ends(known.places[0].uid, "it was never started")
        assert known.places[0].uid not in again.after(1.0).started and len(again.started) == 1

    def test_uids_are_never_used_twice_even_when_the_record_was_lost(self) -> None:
        first = a_controller(incarnation="abc123").keeps(5)
        second = a_controller(incarnation="def456").keeps(5)
        assert len({*first.started, *second.started}) == 10

    def test_whoever_was_not_told_of_a_gone_worker_is_told_by_the_next_controller(self) -> None:
        first = a_controller_with(1).keeps(0)
        lost = first.uids[0]
        known = first.ends(lost).saved
        assert a_controller(known=known, incarnation="def456").presence(f"{lost}-aaaa") is Presence.GONE

    def test_its_record_names_the_new_incarnation_at_once(self) -> None:
        known = a_controller_with(1).saved
        assert a_controller(known=known, incarnation="def456").saved.incarnation == "def456"


class TestStopping:
    def test_ends_every_place_that_was_started_here_and_starts_none(self) -> None:
        story = hears(a_controller_with(2), "byhand-1234").forgets_effects()
        own = [place.uid for place in story.places if place.ours]
        story.happens(StopAsked(story.now_s, "SIGTERM"))
        assert story.ended == own
        for uid in own:
            story.ends(uid)
        assert story.after(5.0).started == []

    def test_remembers_what_was_wanted_for_the_next_start(self) -> None:
        story = a_controller_with(2).happens(StopAsked(100.5, "SIGTERM"))
        for uid in story.uids:
            story.ends(uid)
        assert len(a_controller(known=story.saved, incarnation="def456").started) == 2


def test_a_heartbeat_that_says_nothing_new_costs_no_reconciliation() -> None:
    story = a_controller_with(3).after(0.1, all_beat=True)
    due_at_s = story.state.due_at_s
    story.speaks(story.uids[0])
    assert story.state == replace(story.state, due_at_s=due_at_s) and story.wake_at_s == due_at_s
