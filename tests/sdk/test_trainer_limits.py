"""The trainer's core at its limits: the order of acts, entered worlds, groups that are cut and retired."""

from typing import Literal

import pytest

from tests.sdk.trainers import BOTH, STORE, Core, in_a_first_world, in_an_all_reduce, planned, repair
from tradewind.protocol.trainer import Assign, Status
from tradewind.sdk.trainer import events
from tradewind.sdk.trainer.effects import CutGroups, Report, RetireGroups
from tradewind.sdk.trainer.sequence import CLOSING_S, Act, Came, acts, advance, is_over
from tradewind.sdk.trainer.shares import split, without
from tradewind.sdk.trainer.state import OUTSIDE, Trainer, World, may_enter, must_wait, ready_for

Entry = Literal["start", "planned", "repair"]
START = Assign(1, 0, 2, "start", STORE)


def a_trainer(
    *active: bool, entry: Entry = "repair", laggards: tuple[int, ...] = (), keeps: bool = True, done: int = 5
) -> Trainer:
    """A trainer with rank 0 in a world."""
    assign = Assign(2, 0, len(active), entry, STORE, laggards=laggards)
    return Trainer(batch=12, steps=100, world=World(assign, active), done=done, keeps_gradients=keeps)


def order_of(trainer: Trainer, *came: Came | None) -> list[Act | None]:
    """The acts of a trainer with nothing to compute: the first, and one after each answer."""
    order = acts(lambda: trainer, lambda: ())
    return [advance(order, each) for each in (None, *came)]


def test_a_first_world_is_started_and_then_steps_follow_each_other() -> None:
    trainer = a_trainer(True, entry="start")
    assert order_of(trainer, None, None, Came.SAME) == [Act.AWAIT_WORLD, Act.START, Act.STEP, Act.STEP]


def test_what_is_left_of_a_share_is_computed_first() -> None:
    left = [((0, 6),), ((3, 6),), ()]
    order = acts(lambda: a_trainer(True), lambda: left.pop(0))
    assert [advance(order, None) for _ in range(4)] == [Act.AWAIT_WORLD, Act.COMPUTE, Act.COMPUTE, Act.STEP]


def test_a_switch_is_reported_and_a_dead_world_is_followed_by_the_next() -> None:
    came = (None, Came.SWITCHED, None, Came.DEAD)
    assert order_of(a_trainer(True), *came)[1:] == [Act.STEP, Act.REPORT_SWITCH, Act.STEP, Act.AWAIT_WORLD]


def test_after_the_last_step_ranks_close_until_all_may_end() -> None:
    trainer = a_trainer(True, done=100)
    assert order_of(trainer, None, Came.SAME, Came.OVER)[1:] == [Act.CLOSE, Act.CLOSE, None]


def test_gradients_that_do_not_count_are_forgotten() -> None:
    assert order_of(a_trainer(True, keeps=False), None, None)[1:] == [Act.FORGET, Act.STEP]


def test_the_last_step_is_handed_on_to_laggards() -> None:
    trainer = a_trainer(True, laggards=(1,))
    assert order_of(trainer, None, Came.SAME)[1:] == [Act.HAND_ON, Act.STEP]
    joining = a_trainer(False, True, laggards=(1,))
    assert order_of(joining, None, Came.DEAD)[1:] == [Act.HAND_ON, Act.STEP]


def test_a_rank_without_the_state_takes_part_in_steps_until_it_is_active() -> None:
    states = [a_trainer(False, True)] * 3
    order = acts(lambda: states[0], lambda: ())
    came = (None, None, None, None, Came.SAME, None)
    assert [advance(order, each) for each in came] == [
        Act.AWAIT_WORLD, Act.FORGET, Act.BEGIN_JOIN, Act.JOIN_STEP, Act.CATCH_UP, Act.JOIN_STEP,
    ]  # fmt: skip
    states[0] = a_trainer(True, True)
    assert [advance(order, each) for each in (Came.SWITCHED, None, None)] == [
        Act.REPORT_SWITCH, Act.END_JOIN, Act.STEP,
    ]  # fmt: skip


def test_a_rank_that_joins_a_world_that_dies_ends_its_join() -> None:
    came = (None, None, None, Came.DEAD, None)
    assert order_of(a_trainer(False, True), *came)[3:] == [Act.JOIN_STEP, Act.END_JOIN, Act.STEP]


@pytest.mark.parametrize(
    ("active", "waited_s", "over"),
    [((True, True), 0.0, True), ((True, False), CLOSING_S - 1, False), ((True, False), CLOSING_S, True)],
)
def test_a_run_ends_when_all_are_active_or_have_been_waited_for(
    active: tuple[bool, ...], waited_s: float, over: bool
) -> None:
    assert is_over(active, waited_s) is over


def test_a_world_that_is_entered_retires_the_groups_before_it() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2), events.GroupBuilt(0.0, 2))
    effects = core.tell(events.WorldAwaited(0.0))
    assert RetireGroups(2) in effects and core.state.groups.built == {2}
    assert (core.state.waits, core.state.rests_until_s) == ("", None)


def test_a_rank_that_rests_enters_a_repaired_world_and_rests_no_longer() -> None:
    core = in_a_first_world()
    core.tell(events.GaveUp(0.0, "another state", rest_s=9.0), events.Halted(0.0, 2), repair(2))
    assert core.enter_world()
    assert (core.status.resting, core.status.waits, core.wake_at_s) == (False, "", None)


def test_after_the_last_step_nothing_is_dealt() -> None:
    for steps, held in ((5, ()), (6, ((0, 12),))):
        core = in_a_first_world()
        core.state = core.state._replace(steps=steps, held=())
        core.tell(events.Halted(0.0, 2), repair(2, held=((),)))
        assert core.enter_world() and core.state.held == held


def test_only_groups_below_a_halt_are_cut() -> None:
    core = in_a_first_world()
    core.tell(planned(2), events.GroupBuilt(0.0, 2))
    assert CutGroups(1) not in core.tell(events.Halted(0.0, 1))
    assert CutGroups(2) in core.tell(events.Halted(0.0, 2))
    late = core.tell(events.GroupBuilt(0.0, 1))
    assert CutGroups(2) in late


def test_a_group_of_the_halted_generation_is_not_cut_when_it_is_built() -> None:
    core = Core()
    core.tell(events.Halted(0.0, 2), repair(2))
    assert core.tell(events.GroupBuilt(0.0, 2)) == ()


@pytest.mark.parametrize("ok", [True, False])
def test_a_collective_that_ends_in_a_halted_or_broken_world_parks_and_cuts(ok: bool) -> None:
    core = in_an_all_reduce()
    if ok:
        core.tell(events.Halted(0.0, 2))
    effects = core.tell(events.CollectiveEnded(0.0, ok=ok))
    assert CutGroups(2) in effects
    assert (core.status.parked, core.status.broken) == (2, 0 if ok else 1)


def test_a_rank_that_leaves_has_parked_and_waits_outside() -> None:
    core = in_a_first_world()
    core.tell(planned(2, leaves=True))
    assert core.builds == [1] and core.enter_collective()
    core.tell(events.ReadinessDeclared(0.0), events.StepReduced(0.0, BOTH, ready=2), events.StatusAsked(0.0))
    assert (core.status.parked, core.status.active, core.status.generation) == (2, False, 1)
    assert core.status.waits not in ("", OUTSIDE)


def test_a_broken_world_lets_nobody_into_its_collectives() -> None:
    core = in_a_first_world()
    core.tell(events.GaveUp(0.0, "a peer is gone"))
    core.state = core.state._replace(fence=core.state.fence._replace(parked=0))
    core.tell(events.GroupAwaited(0.0))
    assert core.state.collective is None


def test_a_planned_world_at_the_last_halt_may_be_switched_to_and_an_older_one_may_not() -> None:
    core = in_a_first_world()
    core.tell(planned(2), events.GroupBuilt(0.0, 2))
    fence = core.state.fence
    assert [ready_for(core.state._replace(fence=fence._replace(halted=halted))) for halted in (2, 3)] == [2, 0]
    entered = core.state._replace(world=World(Assign(2, 0, 2, "planned", STORE, previous=(0, -1)), BOTH))
    assert ready_for(entered) == 0


def test_an_assignment_at_the_last_halt_is_accepted_and_an_older_one_is_not() -> None:
    for generation, builds in ((2, [1]), (3, [1, 3])):
        core = in_a_first_world()
        core.tell(events.Halted(0.0, 3), repair(generation))
        assert core.builds == builds


def test_a_world_is_entered_by_those_who_have_no_state_that_others_count_on() -> None:
    core = in_a_first_world()
    assert may_enter(core.state, repair(2).assign) and not may_enter(core.state, START)
    assert not may_enter(core.state, planned(2).assign) and not may_enter(core.state, planned(2, rank=1).assign)
    outside = Trainer(batch=12, steps=100)
    assert may_enter(outside, planned(2, rank=1).assign) and not may_enter(outside, planned(2).assign)
    assert not may_enter(outside, planned(2, rank=1, leaves=True).assign)
    assert not must_wait(outside, planned(2).assign)


def test_the_end_of_a_run_is_reported_with_its_certificate() -> None:
    core = in_a_first_world()
    effects = core.tell(events.Finished(0.0, {"samples": 12}))
    assert (core.status.finished, core.status.certificate, core.status.held) == (True, {"samples": 12}, ())
    assert sum(isinstance(effect, Report) for effect in effects) == 1


def test_a_joining_rank_has_the_steps_of_the_state_that_it_receives() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), planned(3, rank=1))
    assert core.enter_world()
    core.tell(events.StateReceived(0.0, 9))
    assert (core.state.done, core.state.held) == (9, ())


def test_an_earlier_end_counts_and_a_later_one_does_not() -> None:
    core = in_an_all_reduce()
    core.tell(events.StepReduced(0.0, BOTH, ends_after=200))
    assert core.state.steps == 100
    for ends_after, held in ((50, ((0, 6),)), (6, ())):
        core = in_a_first_world()
        held_by_both = ((), ((6, 12),))
        assign = Assign(2, 0, 2, "repair", STORE, previous=(0, 1), resume=6, laggards=(0,), held=held_by_both)
        core.tell(events.Halted(0.0, 2), events.Assigned(0.0, assign))
        assert core.enter_world()
        core.tell(events.CaughtUp(0.0, 6, ends_after=ends_after))
        assert (core.state.steps, core.state.held) == (ends_after, held)


def test_a_new_trainer_is_in_no_world_and_its_status_says_so() -> None:
    core = Core()
    core.tell(events.StatusAsked(0.0))
    assert core.status == Status(waits=OUTSIDE)
    state = core.state
    assert (state.is_active, state.is_halted, state.is_in_collective, state.is_parked) == (False, False, False, True)
    assert (state.keeps_gradients, state.reported_collective, state.thread.awaits_world) == (False, False, False)


def test_a_group_of_the_last_halt_that_cannot_be_built_is_reported_and_the_newest_counts() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2))
    core.tell(events.BuildFailed(0.0, 2))
    assert core.status.broken == 2
    core.tell(events.BuildFailed(0.0, 4), events.BuildFailed(0.0, 3))
    assert core.status.broken == 4


def test_groups_that_were_cut_are_not_cut_again_when_the_next_one_is_built() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2))
    assert core.tell(events.GroupBuilt(0.0, 2)) == ()


def test_a_newer_repair_drops_the_worlds_that_waited_for_the_one_before() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2), planned(3))
    assert [each.generation for each in core.state.plan.waiting] == [3]
    core.tell(repair(4))
    assert core.state.plan.next == repair(4).assign and core.state.plan.waiting == ()


def test_a_planned_world_that_waited_is_the_next_as_soon_as_the_repair_is_entered() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2), planned(3))
    assert core.enter_world()
    assert core.state.plan.next == planned(3).assign and core.state.plan.waiting == ()


def test_a_rank_outside_of_a_collective_promises_nothing() -> None:
    core = in_a_first_world()
    core.tell(planned(2), events.GroupBuilt(0.0, 2), events.ReadinessDeclared(0.0))
    assert core.state.plan.promised == 0
    assert core.enter_collective()
    core.tell(events.ReadinessDeclared(0.0))
    assert core.state.plan.promised == 2


def test_a_collective_that_ends_well_changes_nothing_and_is_reported_once_if_it_was_reported() -> None:
    core = in_an_all_reduce()
    assert core.tell(events.CollectiveEnded(0.0, ok=True)) == ()
    assert not core.state.is_parked
    for asked, reports in ((True, 1), (False, 0)):
        assert core.enter_collective()
        if asked:
            core.tell(events.StatusAsked(0.0))
        ended = core.tell(events.StepReduced(0.0, BOTH))
        assert [type(effect) for effect in ended] == [Report] * reports


@pytest.mark.parametrize("asked", [True, False])
def test_a_rank_that_cannot_enter_the_collective_of_a_dead_world_leaves_it(asked: bool) -> None:
    core = in_a_first_world()
    core.state = core.state._replace(groups=core.state.groups._replace(built=frozenset()))
    assert not core.enter_collective()
    if asked:
        core.tell(events.StatusAsked(0.0))
        assert core.status.waiting == 5
    core.state = core.state._replace(fence=core.state.fence._replace(halted=2, parked=2))
    effects = core.tell(events.Ticked(0.0))
    assert core.state.collective is None
    assert [type(effect) for effect in effects] == [Report] * asked


def test_ranks_that_become_active_or_end_in_a_step_are_so_from_then_on() -> None:
    core = in_an_all_reduce()
    core.tell(events.StepReduced(0.0, (True, False)))
    assert core.state.world is not None and core.state.world.active == (True, False)
    assert core.state.held == ((0, 12),)


def test_the_start_of_a_first_world_is_reported_with_its_share() -> None:
    core = Core()
    core.tell(events.Assigned(0.0, START))
    assert core.enter_world()
    effects = core.tell(events.Started(0.0, 5))
    assert [type(effect) for effect in effects] == [Report]
    assert (core.status.active, core.status.done, core.status.held) == (True, 5, ((0, 6),))


def test_a_lease_limits_only_a_world_of_one() -> None:
    core = in_a_first_world()
    core.tell(events.Leased(0.0, 1.0), events.Ticked(2.0))
    assert core.tell(events.GroupAwaited(2.0)) == () and core.state.is_in_collective


def test_a_world_at_the_last_halt_is_alive() -> None:
    core = in_a_first_world()
    core.tell(events.Halted(0.0, 2), repair(2), events.GroupBuilt(0.0, 2))
    assert core.enter_world() and not core.state.is_halted
    assert core.enter_collective()
    core.tell(events.StepReduced(0.0, (True,)))
    assert not core.state.is_parked and core.state.held == ((0, 12),)


def test_what_is_split_leaves_no_empty_range() -> None:
    ranges = ((0, 3), (3, 6))
    assert split(ranges, 0) == ((), ranges)
    assert split(ranges, 2) == (((0, 2),), ((2, 3), (3, 6)))
    assert split(ranges, 3) == (((0, 3),), ((3, 6),))
    assert split(ranges, 6) == (ranges, ())
    assert without(((0, 6),), ((0, 3),)) == ((3, 6),)
    assert without(((0, 6),), ((3, 6),)) == ((0, 3),)


def test_a_finished_run_waits_half_a_minute_for_joining_ranks() -> None:
    assert [is_over((True, False), waited_s) for waited_s in (29.9, 30.0)] == [False, True]


def test_events_count_and_rest_only_if_they_say_so() -> None:
    core = in_an_all_reduce()
    core.tell(events.StepReduced(0.0, BOTH))
    assert core.state.done == 6
    core.tell(events.GaveUp(0.0, "another state"))
    assert (core.status.resting, core.wake_at_s) == (False, None)
