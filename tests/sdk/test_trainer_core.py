"""The trainer's core: which world it enters, what it promises, what it reports."""

import pytest

from tests.sdk.trainers import BOTH, STORE, Core, in_a_first_world, in_an_all_reduce, planned, repair
from tradewind.protocol.trainer import Assign
from tradewind.sdk.trainer import events
from tradewind.sdk.trainer.effects import CutGroups, RetireGroups
from tradewind.sdk.trainer.state import OUTSIDE, World, ready_for


def test_a_halt_is_answered_at_once_with_what_is_held() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2))
    assert (core.status.parked, core.status.done, core.status.held) == (2, 5, ((0, 6),))


def test_a_repaired_world_adds_what_nobody_holds() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2))
    assert core.enter_world()
    assert core.state.held == ((0, 12),) and core.state.keeps_gradients


def test_gradients_that_the_master_does_not_count_are_computed_again() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2, held=((),)))
    assert core.enter_world()
    assert core.state.held == ((0, 12),) and not core.state.keeps_gradients


def test_a_world_below_the_last_halt_is_not_entered() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 3), repair(2))
    assert not core.enter_world()


def test_a_thread_that_waits_for_a_world_enters_it_with_the_assignment() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2))
    assert not core.enter_world()
    core.tell(repair(2))
    assert not core.state.thread.awaits_world
    assert (core.status.generation, core.status.held) == (2, ((0, 12),))


def test_a_planned_world_does_not_replace_the_repair_that_comes_before_it() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2), planned(3))
    assert core.enter_world()
    assert core.status.generation == 2 and core.state.held == ((0, 12),)
    core.tell(events.GroupBuilt(0.0, 3))
    assert core.builds == [1, 2, 3] and ready_for(core.state) == 3


def test_a_rank_of_a_broken_world_does_not_enter_the_planned_one_by_itself() -> None:
    core = in_a_first_world()
    core.tell(planned(2), events.GaveUp(0.0, "a peer is gone"))
    assert (core.status.broken, core.status.parked) == (1, 2)
    assert not core.enter_world()
    core.tell(events.Halted(0.0, 3), repair(3))
    assert not core.state.thread.awaits_world and core.state.keeps_gradients


def test_a_rank_that_was_left_out_enters_a_planned_world_without_its_state() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), planned(3, rank=1))
    assert core.enter_world()
    assert not core.state.is_active and core.state.held == ()


def test_a_rank_that_has_left_is_no_longer_the_first_of_those_that_have_the_state() -> None:
    core = in_a_first_world()
    core.tell(planned(2, leaves=True))
    assert core.state.world is not None and core.state.world.is_first
    assert core.enter_collective()
    core.tell(events.ReadinessDeclared(0.0), events.StepReduced(0.0, BOTH, ready=2))
    assert core.switches == [2]
    assert not core.state.world.is_first and core.state.held == ()


def test_orders_that_are_repeated_change_nothing() -> None:
    core = in_a_first_world()
    for _ in range(3):
        core.tell(events.Halted(0.0, 2), repair(2))
    assert core.builds == [1, 2]
    assert core.enter_world()
    core.tell(repair(2))
    assert not core.enter_world()


def test_a_planned_world_that_cannot_be_built_is_reported_and_the_present_one_continues() -> None:
    core = in_a_first_world()
    core.tell(planned(2), events.BuildFailed(0.0, 2))
    assert (core.status.generation, core.status.parked, core.status.broken) == (1, 0, 2)
    assert ready_for(core.state) == 0
    assert core.enter_collective()


def test_a_world_that_was_halted_before_it_could_not_be_built_is_not_reported() -> None:
    core = in_a_first_world()
    core.tell(planned(2), events.Halted(0.0, 3), events.BuildFailed(0.0, 2), events.StatusAsked(0.0))
    assert (core.status.parked, core.status.broken) == (3, 0)


def test_a_present_world_that_cannot_be_built_is_broken() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2))
    assert core.enter_world()
    core.tell(events.BuildFailed(0.0, 2))
    assert not core.enter_collective()
    assert (core.status.broken, core.status.parked, core.status.waiting) == (2, 3, None)


def test_a_world_is_whole_after_a_repair_if_only_a_joining_rank_is_not_in_it() -> None:
    before = World(Assign(2, 0, 3, "planned", STORE, previous=(0, 1, -1)), (True, True, False))
    assert before.is_whole_in(Assign(3, 0, 2, "repair", STORE, previous=(0, 1)))
    assert before.is_whole_in(Assign(3, 0, 3, "repair", STORE, previous=(0, 1, -1)))
    assert not before.is_whole_in(Assign(3, 0, 1, "repair", STORE, previous=(0,)))
    assert not before.is_whole_in(Assign(3, 0, 2, "repair", STORE, previous=(0, -1)))


# What a rank promises in its control words.


def ready_in_an_all_reduce() -> Core:
    """A core whose control words say that it is ready for generation 2."""
    core = in_a_first_world()
    core.tell(planned(2), events.GroupBuilt(0.0, 2))
    assert core.enter_collective()
    core.tell(events.ReadinessDeclared(0.0))
    assert core.state.plan.promised == 2
    return core


def test_all_ranks_switch_to_the_world_they_are_ready_for_and_take_their_share_in_it() -> None:
    core = ready_in_an_all_reduce()
    effects = core.tell(events.StepReduced(0.0, BOTH, ready=2))
    assert core.switches == [2] and RetireGroups(2) in effects
    assert (core.state.done, core.state.held) == (6, ((0, 12),))


def test_a_promised_world_is_not_replaced_by_a_newer_assignment_before_its_all_reduce_has_ended() -> None:
    core = ready_in_an_all_reduce()
    core.tell(planned(3), events.GroupBuilt(0.0, 3))
    core.tell(events.StepReduced(0.0, BOTH, ready=2))
    assert core.switches == [2]
    assert core.state.world is not None and core.state.world.generation == 2
    assert ready_for(core.state) == 3 and core.builds == [1, 2, 3]


def test_a_newer_assignment_is_next_when_the_all_reduce_did_not_switch() -> None:
    core = ready_in_an_all_reduce()
    core.tell(planned(3), events.GroupBuilt(0.0, 3), events.StepReduced(0.0, BOTH))
    assert core.switches == [] and ready_for(core.state) == 3


def test_a_rank_that_leaves_in_band_joins_again_only_after_it_has_left() -> None:
    core = in_a_first_world()
    core.tell(planned(2, leaves=True))
    assert core.enter_collective()
    core.tell(events.ReadinessDeclared(0.0), planned(3, rank=1))
    core.tell(events.StepReduced(0.0, BOTH, ready=2))
    assert core.switches == [2] and not core.state.is_active
    assert core.enter_world()
    assert (core.status.generation, core.status.active) == (3, False)


def test_a_world_that_was_not_declared_in_these_control_words_is_not_switched_to() -> None:
    core = in_an_all_reduce()
    core.tell(events.ReadinessDeclared(0.0), planned(2), events.GroupBuilt(0.0, 2))
    core.tell(events.StepReduced(0.0, BOTH, ready=2))
    assert core.switches == []


def test_a_halt_wins_over_a_promise() -> None:
    core = ready_in_an_all_reduce()
    core.tell(events.Halted(0.0, 3), repair(3), events.StepReduced(0.0, BOTH, ready=2))
    assert core.switches == []
    assert (core.status.generation, core.status.parked, core.status.done, core.status.held) == (1, 3, 6, ())


def test_a_repair_that_waited_for_a_promise_is_entered_before_the_planned_world_after_it() -> None:
    core = ready_in_an_all_reduce()
    core.tell(events.Halted(0.0, 3), repair(3), planned(4), events.StepFailed(0.0))
    assert core.enter_world()
    assert core.status.generation == 3
    core.tell(events.GroupBuilt(0.0, 4))
    assert ready_for(core.state) == 4


# What it reports of its collectives.


def test_a_long_wait_is_reported_once_and_breaks_nothing() -> None:
    core = in_an_all_reduce()
    reported = len(core.statuses)
    core.tell(events.WaitedLong(0.0), events.WaitedLong(0.0))
    assert len(core.statuses) == reported + 1
    assert (core.status.waiting, core.status.overdue) == (5, True)
    assert (core.status.broken, core.status.parked) == (0, 0)
    core.tell(events.StepReduced(0.0, BOTH))
    assert (core.status.waiting, core.status.overdue, core.status.done) == (None, False, 6)


def test_a_rank_that_is_asked_where_it_is_reports_at_once_and_again_when_it_has_left() -> None:
    core = in_a_first_world()
    core.tell(events.StatusAsked(0.0))
    assert (core.status.waiting, core.status.overdue) == (None, False)
    assert core.enter_collective(4)
    core.tell(events.StatusAsked(0.0))
    assert (core.status.waiting, core.status.overdue) == (4, False)
    core.tell(events.CollectiveEnded(0.0, ok=True))
    assert core.status.waiting is None


def test_steps_that_nobody_waits_for_are_not_reported() -> None:
    core = in_an_all_reduce()
    reported = len(core.statuses)
    core.tell(events.StepReduced(0.0, BOTH))
    assert len(core.statuses) == reported


def test_a_rank_that_waits_for_its_group_does_not_count_as_missing() -> None:
    core = Core()
    core.tell(events.Assigned(0.0, Assign(1, 0, 2, "start", STORE)))
    assert core.enter_world() and not core.enter_collective()
    core.tell(events.StatusAsked(0.0))
    assert (core.status.waiting, core.status.overdue) == (0, False)
    core.tell(events.Halted(0.0, 2))
    assert core.state.collective is None and core.status.waiting is None


def test_a_rank_in_a_collective_parks_when_it_has_fallen_out_of_it() -> None:
    core = in_an_all_reduce()
    effects = core.tell(events.Halted(0.0, 2))
    assert effects == (CutGroups(2),)
    core.tell(events.StepFailed(0.0))
    assert (core.status.parked, core.status.broken, core.status.held) == (2, 0, ((0, 6),))


def test_a_collective_that_fails_before_any_halt_is_reported_as_broken() -> None:
    core = in_an_all_reduce()
    effects = core.tell(events.StepFailed(0.0))
    assert CutGroups(2) in effects
    assert (core.status.parked, core.status.broken, core.status.held) == (2, 1, ((0, 6),))


def test_a_result_that_came_before_a_halt_counts_though_the_world_is_dead() -> None:
    core = in_an_all_reduce()
    core.tell(events.Halted(0.0, 2), events.StepReduced(0.0, BOTH))
    assert (core.status.parked, core.status.done, core.status.held) == (2, 6, ())


def test_a_rank_that_missed_the_last_all_reduce_takes_its_part_of_the_missing_samples_with_it() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2))
    assign = Assign(2, 0, 2, "repair", STORE, previous=(0, 1), resume=6, source=1, laggards=(0,), held=((), ((6, 12),)))
    core.tell(events.Assigned(0.0, assign), events.GroupBuilt(0.0, 2))
    assert core.enter_world()
    assert core.enter_collective(5)
    core.tell(events.CollectiveEnded(0.0, ok=True), events.CaughtUp(0.0, 6))
    assert (core.state.done, core.state.held) == (6, ((0, 6),))


def test_the_end_that_some_rank_asked_for_leaves_nothing_to_compute() -> None:
    core = in_an_all_reduce()
    core.tell(events.StepReduced(0.0, BOTH, ends_after=6))
    assert (core.state.steps, core.state.done, core.state.held) == (6, 6, ())


# Rests, pauses, leases.


def test_a_joining_rank_that_was_refused_rests_before_it_waits_again() -> None:
    core = in_a_first_world()
    core.tell(events.GaveUp(10.0, "another state", rest_s=2.0))
    assert (core.status.waits, core.status.resting, core.wake_at_s) == ("another state", True, 12.0)
    assert not core.enter_world()
    core.tell(events.Ticked(11.9))
    assert core.status.resting
    core.tell(events.Ticked(12.0))
    assert (core.status.waits, core.status.resting, core.wake_at_s) == (OUTSIDE, False, None)


def test_nested_pauses_are_reported_from_the_first_to_the_last() -> None:
    core = in_a_first_world()
    core.tell(events.PauseBegan(0.0, "evaluating", 100.0), events.PauseBegan(0.0, "downloading", 101.0))
    assert (core.status.paused, core.status.paused_at) == ("downloading", 101.0)
    core.tell(events.PauseEnded(0.0, "downloading", 101.0))
    assert (core.status.paused, core.status.paused_at) == ("evaluating", 100.0)
    core.tell(events.PauseEnded(0.0, "evaluating", 100.0))
    assert (core.status.paused, core.status.paused_at) == ("", 0.0)


@pytest.mark.parametrize(("at_s", "may"), [(4.9, True), (5.0, False)])
def test_a_world_of_one_trains_only_while_its_lease_is_valid(at_s: float, may: bool) -> None:
    core = in_a_first_world()
    core.tell(events.Leased(0.0, 5.0), events.Halted(0.0, 2), repair(2), events.GroupBuilt(0.0, 2))
    assert core.enter_world()
    core.tell(events.GroupAwaited(at_s))
    assert core.state.is_in_collective is may
    core.tell(events.Leased(6.0, 5.0))
    assert core.state.is_in_collective
