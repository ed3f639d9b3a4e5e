"""Learn from the event, then reconcile, then tell what is new.

A fact is told once and fast; the status that it carries is repeated by every heartbeat, so no fact needs an answer.
"""

from dataclasses import replace

from agents.worker.effects import (
    FlushProgress,
    ForkTrainers,
    Leave,
    SendHeartbeat,
    StartHost,
    StopTrainers,
    TellFact,
    TellNotice,
    WorkerEffect,
)
from agents.worker.events import TrainerForked, WorkerEvent
from agents.worker.learn import learn
from agents.worker.state import Host, Leaving, Standing, Stop, Trainer, WorkerState, status_of
from messages.workers import TrainerExit, WorkerPhase
from runtime.role import Decision

Step = tuple[WorkerState, list[WorkerEffect]]


def decide(state: WorkerState, event: WorkerEvent) -> Decision[WorkerState, WorkerEffect]:
    if state.left:
        return Decision(state, why="it has left")
    at_s = event.at_s
    after = learn(state, event)
    effects = _stray(after, event)
    for reconcile in (_go_in_time, _stop_older, _obey, _keep_host, _fork):
        after, asked = reconcile(after, at_s)
        effects += asked
    for tell in (_tell_news, _heartbeat, _leave):
        after, told = tell(state, after, at_s)
        effects += told
    return Decision(after, tuple(effects), why=waiting_for(after), wake_at_s=_wake_at_s(after))


def waiting_for(state: WorkerState) -> str:
    if state.leaving is not None:
        return f"leaves: {state.leaving.why}" + (f"; {len(state.trainers)} trainers to end" if state.trainers else "")
    world = f"generation {state.generation}"
    match state.phase:
        case WorkerPhase.STOPPING:
            return f"{len(state.trainers)} trainers of {world} to end before generation {state.fence}"
        case WorkerPhase.WARMING:
            return "the host to import torch" + (f"; it was lost: {state.host_why}" if state.host_why else "")
        case WorkerPhase.STARTING if state.host is not Host.WARM:
            return f"the host, to fork the trainers of {world}"
        case WorkerPhase.STARTING:
            return f"the trainers of {world} to be forked"
        case WorkerPhase.READY:
            return f"the trainers of {world}, ranks {', '.join(map(str, state.ranks))}"
        case WorkerPhase.ENDED:
            return f"the master: all trainers of {world} have exited"
        case WorkerPhase.PARKED:
            return f"the assignment of {world}"
        case _:
            return f"an assignment: no rank in {world}" if state.generation else "an assignment"


def _stray(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """A trainer of a dead generation that nobody counts any more must not live on."""
    if isinstance(event, TrainerForked) and event.generation < state.generation:
        return [StopTrainers(event.generation, 0.0)]
    return []


def _go_in_time(state: WorkerState, at_s: float) -> Step:
    rules = state.rules
    if state.leaving is not None:
        return state, []
    why = None
    grace_s = state.stop_grace_s
    if state.notice_deadline_s is not None and at_s >= state.notice_deadline_s - rules.notice_margin_s:
        why = f"the notice ({state.notice_source}) has run out"
        grace_s = min(grace_s, rules.notice_margin_s / 2)
    elif not state.connected and at_s >= state.heard_at_s + rules.orphan_s:
        why = f"the bus was away for {rules.orphan_s:.0f} s"
    if why is not None:
        return replace(state, leaving=Leaving(why, 0, grace_s)), []
    if state.host is Host.ABSENT and state.host_losses >= rules.host_losses_max:
        why = f"the host was lost {state.host_losses} times: {state.host_why}"
        return replace(state, leaving=Leaving(why, 1, grace_s)), []
    return state, []


def _stop_older(state: WorkerState, at_s: float) -> Step:
    unwanted = state.leaving is not None or state.fence > state.generation
    if not unwanted or not state.trainers:
        return state, []
    if state.stop is not None and at_s < _stop_repeat_at_s(state, state.stop):
        return state, []
    grace_s = state.stop_grace_s if state.leaving is None else state.leaving.grace_s
    return replace(state, stop=Stop(grace_s, at_s)), [StopTrainers(state.generation, grace_s)]


def _obey(state: WorkerState, at_s: float) -> Step:
    """The newest halt or assignment, once no trainer stands in its way."""
    if state.leaving is not None or state.trainers:
        return state, []
    if state.fence == state.generation and state.pending is None:
        return state, []
    obeying = replace(
        state,
        generation=state.fence,
        standing=Standing.PARKED,
        world=state.pending,
        pending=None,
        forked=frozenset(),
        exits=(),
        step=None,
        stop=None,
    )
    if obeying.world is None:
        return obeying, []
    return replace(obeying, standing=Standing.FREE if obeying.member is None else Standing.MEMBER), []


def _keep_host(state: WorkerState, at_s: float) -> Step:
    if state.host is not Host.ABSENT or state.leaving is not None or at_s < state.host_start_due_s:
        return state, []
    return replace(state, host=Host.WARMING, host_since_s=at_s), [StartHost()]


def _fork(state: WorkerState, at_s: float) -> Step:
    untouched = not state.trainers and not state.exits and state.fence == state.generation
    if state.world is None or not state.ranks or not untouched or state.host is not Host.WARM or state.leaving:
        return state, []
    trainers = tuple(Trainer(state.generation, rank) for rank in state.ranks)
    return replace(state, trainers=trainers), [ForkTrainers(state.world)]


def _tell_news(before: WorkerState, after: WorkerState, at_s: float) -> Step:
    effects: list[WorkerEffect] = []

    def tell(fact: str, *, ended: TrainerExit | None = None, step: int | None = None) -> None:
        nonlocal after
        after = replace(after, seq=after.seq + 1)
        effects.append(TellFact(fact, status_of(after, at_s), exit=ended, step=step))

    if before.notice_deadline_s is None and after.notice_deadline_s is not None:
        effects.append(TellNotice(after.notice_deadline_s - at_s, after.notice_source))
    same_world = before.generation == after.generation
    for ended in after.exits[len(before.exits) if same_world else 0 :]:
        tell("peer_lost" if ended.peer_lost else "exited", ended=ended)
    if after.step is not None and (before.step is None or not same_world):
        tell("switched", step=after.step)
    phase_changed = before.phase is not after.phase or not same_world
    if phase_changed and after.phase is WorkerPhase.READY:
        tell("ready")
    if before.phase is WorkerPhase.WARMING and after.phase in (WorkerPhase.IDLE, WorkerPhase.PARKED):
        tell("joined")
    elif phase_changed and after.phase is WorkerPhase.PARKED:
        effects.append(FlushProgress())
        tell("parked")
    return after, effects


def _heartbeat(before: WorkerState, after: WorkerState, at_s: float) -> Step:
    if not after.connected or at_s < after.heartbeat_due_s:
        return after, []
    after = replace(after, seq=after.seq + 1, heartbeat_due_s=at_s + after.rules.heartbeat_s)
    return after, [SendHeartbeat(status_of(after, at_s))]


def _leave(before: WorkerState, after: WorkerState, at_s: float) -> Step:
    if after.leaving is None or after.trainers:
        return after, []
    after = replace(after, seq=after.seq + 1, left=True, stop=None)
    leaving = after.leaving
    assert leaving is not None
    left = TellFact("left", status_of(after, at_s), why=leaving.why)
    return after, [FlushProgress(), left, Leave(leaving.code, leaving.why)]


def _stop_repeat_at_s(state: WorkerState, stop: Stop) -> float:
    return stop.asked_at_s + stop.grace_s + state.rules.stop_repeat_s


def _wake_at_s(state: WorkerState) -> float | None:
    if state.left:
        return None
    times = []
    if state.connected:
        times.append(state.heartbeat_due_s)
    if state.stop is not None:
        times.append(_stop_repeat_at_s(state, state.stop))
    if state.leaving is None:
        if not state.connected:
            times.append(state.heard_at_s + state.rules.orphan_s)
        if state.host is Host.ABSENT:
            times.append(state.host_start_due_s)
        if state.notice_deadline_s is not None:
            times.append(state.notice_deadline_s - state.rules.notice_margin_s)
    return min(times, default=None)
