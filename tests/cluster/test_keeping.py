"""The number of workers that the cluster-controller keeps alive, and workers that are removed by name."""

import pytest
from msgspec.structs import replace

from agents.cluster.effects import SaveKnown
from agents.cluster.events import KnownSaved, PlaceStarted, SaveFailed
from tests.cluster.builders import JOB, OTHER_JOB, a_controller, a_controller_with


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


class TestRemoving:
    def test_exactly_those_are_ended(self) -> None:
        story = a_controller_with(3)
        noticed = story.uids[1]
        assert story.removes(f"{noticed}-aaaa").ended == [noticed]

    def test_they_are_not_replaced_until_the_count_is_said_again(self) -> None:
        story = a_controller_with(3)
        noticed = story.uids[1]
        story.removes(f"{noticed}-aaaa").ends(noticed).after(5.0, all_beat=True)
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


def test_a_heartbeat_that_says_nothing_new_costs_no_reconciliation() -> None:
    story = a_controller_with(3).after(0.1, all_beat=True)
    due_at_s = story.state.due_at_s
    story.speaks(story.uids[0])
    assert story.state == replace(story.state, due_at_s=due_at_s) and story.wake_at_s == due_at_s
