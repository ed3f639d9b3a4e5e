"""The view that a master builds from the reports of a cluster-controller."""

from itertools import pairwise

from msgspec import structs

from agents.cluster.events import PlaceEnded, WholeAsked
from agents.cluster.reports import split
from controlplane.jobs.cluster_views import ASK_AGAIN_S, INCARNATION_QUIET_S, Changes, ClusterView, JobFeed, Mismatch
from messages.clusters import ClusterHeartbeat, NodeObservation, Presence, WorkerObservation
from messages.ids import ClusterName, JobName, WorkerId
from tests.cluster.builders import JOB, LOCAL, OTHER_JOB, a_controller, a_controller_with, reported

WORKER = WorkerId("w1-0001")


def a_report(seq: int, *observations: WorkerObservation, base: int = 0, incarnation: str = "one") -> ClusterHeartbeat:
    return ClusterHeartbeat(LOCAL, incarnation, seq, workers=observations, base=base)


def an_observation(worker: str, job: JobName = JOB, presence: Presence = Presence.ALIVE) -> WorkerObservation:
    return WorkerObservation(WorkerId(worker), job, presence)


def taken(view: ClusterView, report: ClusterHeartbeat, now_s: float = 0.0) -> Changes:
    changes = view.take(report, now_s)
    assert isinstance(changes, Changes), changes
    return changes


class TestAView:
    def test_applies_changes_to_the_report_that_they_name(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(1, an_observation("a"), an_observation("b")))
        changes = taken(view, structs.replace(a_report(2, an_observation("c"), base=1), forgotten=(WorkerId("a"),)))
        assert set(view.workers) == {"b", "c"} and not changes.is_whole
        assert [observation.worker for observation in changes.by_job[JOB].observations] == ["c"]
        assert changes.by_job[JOB].forgotten == ["a"]

    def test_asks_for_the_whole_state_of_a_controller_that_it_did_not_know(self) -> None:
        mismatch = ClusterView(LOCAL).take(a_report(7, an_observation("a"), base=6), 0.0)
        assert isinstance(mismatch, Mismatch) and mismatch.ask is not None

    def test_asks_when_a_report_is_missing_and_less_often_each_time(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(1))
        asked = []
        for number in range(2000):
            outcome = view.take(a_report(number + 3, base=number + 2), number * 0.01)
            assert isinstance(outcome, Mismatch)
            asked += [number * 0.01] if outcome.ask is not None else []
        gaps = [later - earlier for earlier, later in pairwise(asked)]
        assert asked[0] == 0.0 and gaps[0] < 2 * ASK_AGAIN_S
        assert gaps == sorted(gaps) and 3 < len(asked) < 10
        assert view.workers == {}

    def test_takes_nothing_that_leads_to_another_digest_until_the_whole_state_comes(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(1, an_observation("a")))
        wrong = structs.replace(a_report(2, an_observation("b"), base=1), digest="0" * 16)
        assert isinstance(view.take(wrong, 0.0), Mismatch)
        assert isinstance(view.take(a_report(3, base=2), 0.0), Mismatch)
        assert set(taken(view, a_report(4, an_observation("c"))).view.workers) == {"c"}

    def test_waits_for_all_parts_in_any_order_and_counts_one_that_comes_twice_once(self) -> None:
        view = ClusterView(LOCAL)
        whole = a_report(1, *(an_observation(f"w{number}") for number in range(5)))
        parts = split(whole, bytes_at_most=0)
        assert len(parts) == 5
        assert [view.take(part, 0.0) for part in (parts[4], parts[0], parts[0], parts[2], parts[1])] == [None] * 5
        assert len(taken(view, parts[3]).view.workers) == 5
        assert view.take(parts[3], 0.0) is None

    def test_misses_a_report_of_which_a_part_is_lost(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(1))
        for part in split(a_report(2, an_observation("a"), an_observation("b"), base=1), bytes_at_most=0)[1:]:
            assert view.take(part, 0.0) is None
        assert isinstance(view.take(a_report(3, base=2), 0.0), Mismatch)

    def test_takes_no_old_report(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(5, an_observation("a")))
        assert view.take(a_report(5), 0.0) is None and view.take(a_report(4), 0.0) is None
        assert set(view.workers) == {"a"}

    def test_is_not_taken_from_its_controller_for_good_by_a_stray_one(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(1, an_observation("a")))
        taken(view, a_report(1, incarnation="stray"), 1.0)
        assert view.take(a_report(2, base=1), 2.0) is None
        assert isinstance(view.take(a_report(9, base=8), 1.0 + INCARNATION_QUIET_S), Mismatch)
        assert set(taken(view, a_report(10, an_observation("a")), 7.0).view.workers) == {"a"}

    def test_counts_durations_on(self) -> None:
        view = ClusterView(LOCAL)
        node = NodeObservation("n1", notice_s=30.0)
        silent = structs.replace(an_observation("a", presence=Presence.SILENT), silent_s=2.0)
        taken(view, structs.replace(a_report(1, silent), nodes=(node,)), 100.0)
        topology = view.topology(110.0)
        assert topology.workers[0].silent_s == 12.0 and topology.nodes[0].notice_s == 20.0

    def test_of_a_sender_without_deltas_and_digests_is_its_last_report(self) -> None:
        view = ClusterView(LOCAL)
        taken(view, a_report(1, an_observation("a")))
        assert set(taken(view, a_report(2, an_observation("b"))).view.workers) == {"b"}


class TestAFeed:
    def test_begins_with_all_workers_of_its_job_and_then_has_what_changes(self) -> None:
        view, feed = ClusterView(LOCAL), JobFeed(JOB)
        taken(view, a_report(1, an_observation("a"), an_observation("x", OTHER_JOB)))
        changes = taken(view, a_report(2, an_observation("b"), base=1))
        first = feed.event_of(changes, (), 0.0)
        assert first is not None and first.is_whole and [each.worker for each in first.observations] == ["a", "b"]
        then = feed.event_of(taken(view, a_report(3, an_observation("c"), base=2)), (), 0.0)
        assert then is not None and not then.is_whole and [each.worker for each in then.observations] == ["c"]

    def test_is_whole_again_when_another_whole_state_comes(self) -> None:
        view, feed = ClusterView(LOCAL), JobFeed(JOB)
        feed.event_of(taken(view, a_report(1, an_observation("a"))), (), 0.0)
        again = feed.event_of(taken(view, a_report(2, an_observation("b"))), (), 0.0)
        assert again is not None and again.is_whole and [each.worker for each in again.observations] == ["b"]

    def test_tells_of_what_concerns_others_only_that_the_cluster_was_heard_now_and_then(self) -> None:
        view, feed = ClusterView(LOCAL), JobFeed(JOB)
        feed.event_of(taken(view, a_report(1)), (), 0.0)
        heard = [
            feed.event_of(taken(view, a_report(seq, an_observation("x", OTHER_JOB), base=seq - 1)), (), seq / 10)
            for seq in range(2, 22)
        ]
        assert 3 <= sum(event is not None for event in heard) <= 5
        assert all(event is None or event.observations == () for event in heard)

    def test_repeats_workers_that_its_job_holds_for_lost_while_they_are_listed(self) -> None:
        view, feed = ClusterView(LOCAL), JobFeed(JOB)
        taken(view, a_report(1, an_observation("a"), an_observation("b"), an_observation("c", presence=Presence.GONE)))
        feed.event_of(taken(view, a_report(2, base=1)), (), 0.0)
        event = feed.event_of(taken(view, a_report(3, base=2)), {WorkerId("b"), WorkerId("c")}, 2.0)
        assert event is not None and [each.worker for each in event.observations] == ["b"]


class TestAController:
    def test_reports_only_what_changed(self) -> None:
        story = a_controller_with(20).after(5.0, all_beat=True).forgets_effects()
        story.after(1.1, all_beat=True)
        assert all(report.base and not report.workers for report in story.reports)
        story.forgets_effects().happens(PlaceEnded(story.now_s, story.uids[0], "killed")).after(0.1)
        named = [observation.worker for report in story.reports for observation in report.workers]
        assert len(named) <= 3 and any("aaaa" in worker for worker in named)

    def test_reports_the_whole_state_when_it_is_asked_but_not_too_often(self) -> None:
        story = a_controller_with(3).after(1.0, all_beat=True).forgets_effects()
        for _ in range(50):
            story.now_s += 0.01
            story.happens(WholeAsked(story.now_s))
        whole = [report for report in story.reports if not report.base]
        assert 1 <= len(whole) <= 3 and all(len(report.workers) == 3 for report in whole)

    def test_reports_each_worker_again_now_and_then_so_that_its_numbers_stay_near(self) -> None:
        story = a_controller_with(3)
        story.after(700.0, all_beat=True)
        for observation in story.view.workers.values():
            assert observation.status is not None and observation.status.seq > 200

    def test_forgets_what_it_listed_in_place_of_a_worker_that_had_not_spoken(self) -> None:
        story = a_controller().keeps(1).after(0.1)
        story.speaks(story.uids[0]).after(0.1)
        assert [worker for report in story.reports for worker in report.forgotten] == [f"{story.uids[0]}-0000"]

    def test_is_known_as_well_from_changes_as_from_its_whole_state(self) -> None:
        story = a_controller_with(5).keeps(7, OTHER_JOB).after(1.0, all_beat=True)
        story.ends(story.uids[0]).after(3.0).all_speak().after(0.1)
        before = reported(story.view.topology(story.now_s))
        story.happens(WholeAsked(story.now_s)).after(0.3)
        after = reported(story.view.topology(story.now_s))
        assert isinstance(before, tuple) and isinstance(after, tuple) and before[1:] == after[1:]
        assert story.view.cluster == ClusterName("local")
