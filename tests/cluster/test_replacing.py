"""Workers that are lost, leave or never report, and their replacements."""

from itertools import pairwise

from agents.cluster.events import AgentEnded, PlaceFailed, WorkerHeard, WorkerSaidLeft
from agents.cluster.learn import not_started
from messages.clusters import Presence
from messages.ids import WorkerId
from messages.workers import WorkerPhase
from tests.cluster.builders import JOB, a_controller, a_controller_with, a_status


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
        assert story.state.backoffs[JOB].failures == 1

    def test_a_start_that_fails_is_tried_again_later(self) -> None:
        story = a_controller()
        story.starts = False
        why = "no such interpreter"
        story.keeps(1).happens(PlaceFailed(story.now_s, story.uids[0], why))
        assert len(story.started) == 1
        gone = story.after(0.1).topologies[-1].workers[0]
        assert gone.presence is Presence.GONE and gone.why == not_started(why)
        assert len(story.after(1.0).started) == 2

    def test_one_that_lived_ends_the_backoff(self) -> None:
        story = a_controller().keeps(1)
        story.ends(story.uids[0]).after(1.0)
        assert story.state.backoffs[JOB].failures > 0
        story.after(12.0, all_beat=True).ends(story.uids[0])
        assert story.state.backoffs[JOB].failures == 0 and len(story.uids) == 1

    def test_a_worker_that_leaves_is_replaced_before_its_process_is_gone(self) -> None:
        story = a_controller_with(2)
        leaving_worker = story.uids[0]
        story.happens(WorkerSaidLeft(story.now_s, WorkerId(f"{leaving_worker}-aaaa"), "noticed"))
        assert len(story.started) == 1
        assert story.ends(leaving_worker).after(5.0, all_beat=True).started == story.started[:1]

    def test_a_worker_whose_agent_ended_is_gone_and_replaced_before_its_place_is_empty(self) -> None:
        story = a_controller_with(2)
        lost = story.uids[0]
        story.happens(AgentEnded(story.now_s, lost, "killed")).after(0.01, all_beat=True)
        assert story.presence(f"{lost}-aaaa") is Presence.GONE
        assert len(story.started) == 1
        assert story.ends(lost).after(5.0, all_beat=True).started == story.started[:1]

    def test_an_agent_that_ended_before_it_spoke_is_told_with_its_place(self) -> None:
        story = a_controller().keeps(1)
        mute = story.uids[0]
        assert story.happens(AgentEnded(story.now_s, mute, "killed")).uids == [mute]
        story.ends(mute)
        assert mute not in story.uids

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
        leaving_worker = story.uids[0]
        story.happens(WorkerSaidLeft(story.now_s, WorkerId(f"{leaving_worker}-aaaa"), "released")).after(5.0)
        assert story.ended == []
        assert story.after(6.0).ended == [leaving_worker]
