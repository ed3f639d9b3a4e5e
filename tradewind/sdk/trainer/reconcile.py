"""Consequences of a trainer's state: which world comes next, and what the training thread may enter now."""

from tradewind.protocol.trainer import Assign, Ranges
from tradewind.sdk.trainer.shares import deal, merged
from tradewind.sdk.trainer.state import OUTSIDE, Collective, World, may_enter, must_wait
from tradewind.sdk.trainer.turn import Turn


def reconcile(turn: Turn) -> None:
    if turn.state.plan.waiting:
        _advance_plan(turn)
    if turn.state.rests_until_s is not None and turn.now_s >= turn.state.rests_until_s:
        turn.change(rests_until_s=None, waits=OUTSIDE)
        turn.report()
    collective = turn.state.collective
    if turn.state.thread.awaits_world:
        _enter_world(turn)
    elif collective is not None and not collective.is_entered:
        _enter_collective(turn, collective)


def _advance_plan(turn: Turn) -> None:
    first, *others = turn.state.plan.waiting
    if not must_wait(turn.state, first):
        turn.set_plan(next=first, waiting=tuple(others))


def _enter_world(turn: Turn) -> None:
    assign = turn.state.plan.next
    if assign is None or not may_enter(turn.state, assign):
        return
    turn.retire(assign.generation)
    entered = tuple(previous >= 0 for previous in assign.previous) or (False,) * assign.world_size
    is_level = entered[assign.rank] and turn.state.done == assign.resume
    counted = merged(assign.held[assign.rank]) if assign.held else ()
    keeps_gradients = is_level and counted == turn.state.held
    turn.change(
        world=World(assign, entered),
        held=_held_in(turn, assign, entered, keeps_gradients=keeps_gradients) if is_level else (),
        keeps_gradients=keeps_gradients,
        waits="",
        rests_until_s=None,
        thread=turn.state.thread._replace(awaits_world=False),
    )
    turn.report()
    if turn.state.plan.waiting:
        _advance_plan(turn)


def _held_in(turn: Turn, assign: Assign, entered: tuple[bool, ...], *, keeps_gradients: bool) -> Ranges:
    """Returns the positions whose gradients count here, and those that this rank computes to complete the step."""
    kept = turn.state.held if keeps_gradients else ()
    if assign.resume >= turn.state.steps:
        return kept
    return merged((*kept, *deal(turn.state.batch, assign.held, entered)[assign.rank]))


def _enter_collective(turn: Turn, collective: Collective) -> None:
    state, world, fence = turn.state, turn.state.world, turn.state.fence
    if world is None or max(fence.halted, fence.parked, fence.broken + 1) > world.generation:
        if turn.leave_collective():
            turn.report()
    elif world.generation in state.groups.failed:
        turn.leave_collective()
        turn.break_world(world)
    elif world.generation in state.groups.built and _lease_is_valid(turn, world):
        turn.change(collective=Collective(collective.step, is_entered=True))


def _lease_is_valid(turn: Turn, world: World) -> bool:
    """Checks the lease of a world of one: only the lease stops it from training beside its replacement."""
    until_s = turn.state.lease_until_s
    return world.size > 1 or until_s is None or turn.now_s < until_s
