"""How each event changes a trainer's state."""

from typing import assert_never

from tradewind.protocol.trainer import Assign
from tradewind.sdk.trainer import events
from tradewind.sdk.trainer.effects import StartBuild, Switch
from tradewind.sdk.trainer.shares import deal
from tradewind.sdk.trainer.state import LEFT, Collective, Pause, World, must_wait, ready_for
from tradewind.sdk.trainer.turn import Turn


def learn(turn: Turn, event: events.TrainerEvent) -> None:
    state = turn.state
    match event:
        case events.StepReduced():
            _step_reduced(turn, event)
        case events.GroupAwaited(_, step):
            turn.change(collective=Collective(state.done if step is None else step))
        case events.ReadinessDeclared():
            _readiness_declared(turn)
        case events.WorldAwaited():
            turn.set_thread(awaits_world=True)
        case events.Assigned(_, assign):
            _assigned(turn, assign)
        case events.Halted(_, generation):
            _halted(turn, generation)
        case events.Leased(at_s, valid_s):
            turn.change(lease_until_s=at_s + valid_s)
        case events.StatusAsked():
            turn.report()
        case events.GroupBuilt(_, generation):
            turn.change(groups=state.groups._replace(built=state.groups.built | {generation}))
            if generation < state.fence.halted:
                turn.cut(state.fence.halted)
        case events.BuildFailed(_, generation):
            turn.change(groups=state.groups._replace(failed=state.groups.failed | {generation}))
            if generation >= state.fence.halted:
                turn.report()  # otherwise all ranks would wait for this one to be ready
        case events.WaitedLong():
            _waited_long(turn)
        case events.CollectiveEnded(_, ok):
            _collective_ended(turn, ok=ok)
        case events.StepFailed():
            _collective_ended(turn, ok=False)
        case events.Started(_, done):
            _started(turn, done)
        case events.CaughtUp():
            _caught_up(turn, event)
        case events.StateReceived(_, done):
            turn.change(done=done)
        case events.GaveUp():
            _gave_up(turn, event)
        case events.PauseBegan(_, reason, since):
            turn.set_thread(pauses=(*state.thread.pauses, Pause(reason, since)))
            turn.report()
        case events.PauseEnded(_, reason, since):
            ended = Pause(reason, since)
            turn.set_thread(pauses=tuple(pause for pause in state.thread.pauses if pause != ended))
            turn.report()
        case events.Finished(_, certificate):
            turn.change(certificate=certificate, held=())
            turn.report()
        case events.Ticked():
            pass
        case _:
            assert_never(event)


def _assigned(turn: Turn, assign: Assign) -> None:
    plan, world = turn.state.plan, turn.state.world
    known = [each.generation for each in (plan.next, world, *plan.waiting) if each is not None]
    if assign.generation <= max(known, default=0) or assign.generation < turn.state.fence.halted:
        return
    if must_wait(turn.state, assign):
        repairs = tuple(each for each in plan.waiting if each.entry != "planned") if assign.entry == "planned" else ()
        turn.set_plan(waiting=(*repairs, assign))
    else:
        turn.set_plan(next=assign, waiting=())
    if not assign.leaves:
        turn.effects.append(StartBuild(assign))


def _readiness_declared(turn: Turn) -> None:
    promised = ready_for(turn.state) if turn.state.is_in_collective else 0
    if promised != turn.state.plan.promised:
        turn.set_plan(promised=promised)


def _halted(turn: Turn, generation: int) -> None:
    turn.set_fence(halted=max(turn.state.fence.halted, generation))
    turn.cut(turn.state.fence.halted)
    if not turn.state.is_in_collective:
        turn.park()


def _waited_long(turn: Turn) -> None:
    collective = turn.state.collective
    if collective is not None and collective.is_entered and not collective.is_overdue:
        turn.change(collective=collective._replace(is_overdue=True))
        turn.report()


def _collective_ended(turn: Turn, *, ok: bool) -> None:
    was_reported = turn.leave_collective()
    world = turn.state.world
    if world is not None and (not ok or turn.state.is_halted):
        if turn.state.is_halted:
            turn.park()
        else:
            turn.break_world(world)
        turn.cut(world.generation + 1)
    elif was_reported:
        turn.report()


def _step_reduced(turn: Turn, event: events.StepReduced) -> None:
    """Completes the step: a rank that has the result has the step, even in a dead world."""
    state, world = turn.state, turn.state.world
    assert world is not None
    promised = state.plan.promised
    became_active = event.active[world.rank] and not world.is_active
    was_reported = turn.leave_collective(done=state.done + event.counts, steps=_earlier(state.steps, event.ends_after))
    if event.active != world.active:
        turn.change(world=World(world.assign, event.active))
    if promised and event.ready == promised and not state.is_halted:
        _switch(turn, event.active)
    if turn.state.is_halted:
        turn.hold(())
        turn.park()
    elif turn.state.is_parked:
        turn.hold(())
    else:
        turn.take_share()
        if became_active or was_reported:
            turn.report()


def _switch(turn: Turn, active: tuple[bool, ...]) -> None:
    assign, world = turn.state.plan.next, turn.state.world
    assert assign is not None and world is not None
    turn.retire(assign.generation)
    if assign.leaves:
        turn.change(world=World(world.assign, (False,) * world.size), waits=LEFT)
        turn.set_fence(parked=assign.generation)
    else:
        entered = tuple(previous >= 0 and active[previous] for previous in assign.previous)
        turn.change(world=World(assign, entered))
    turn.effects.append(Switch(assign.generation))


def _started(turn: Turn, done: int) -> None:
    world = turn.state.world
    assert world is not None
    turn.change(world=World(world.assign, (True,) * world.size), done=done)
    turn.take_share()
    turn.report()


def _caught_up(turn: Turn, event: events.CaughtUp) -> None:
    world = turn.state.world
    assert world is not None
    steps = _earlier(turn.state.steps, event.ends_after)
    share = deal(turn.state.batch, world.assign.held, world.active)[world.rank] if event.done < steps else ()
    turn.change(done=event.done, steps=steps, held=share)


def _gave_up(turn: Turn, event: events.GaveUp) -> None:
    if turn.state.world is not None:
        turn.change(waits=event.why, rests_until_s=turn.now_s + event.rest_s if event.rest_s else None)
        turn.break_world(turn.state.world)


def _earlier(steps: int, ends_after: int | None) -> int:
    return steps if ends_after is None else min(steps, ends_after)
