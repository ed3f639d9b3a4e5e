"""Entry of the core: learns from the event, reconciles, then reports what is new.

A fact is sent once, at once. Each heartbeat repeats the status that the fact contains, so no fact needs an answer.
"""

from dataclasses import replace

from agents.worker import live_rules, restarted_rules
from agents.worker.commands import Lease
from agents.worker.effects import (
    FlushProgress,
    Leave,
    ReadStoredWorld,
    SendHeartbeat,
    StartHost,
    Step,
    StopTrainers,
    TellFact,
    TellNotice,
    TellTrainer,
    WorkerEffect,
)
from agents.worker.events import BusBack, WorkerEvent
from agents.worker.facts import facts_of
from agents.worker.learn import learn
from agents.worker.learn_trainers import back_off
from agents.worker.live import can_obey, is_parking, may_end, must_end
from agents.worker.state import HostPhase, Leaving, Standing, Stop, WorkerState, status_of
from messages.workers import WorkerPhase
from runtime.decision import Decision


def decide(state: WorkerState, event: WorkerEvent) -> Decision[WorkerState, WorkerEffect]:
    if state.left:
        return Decision(state, why="the agent has left")
    at_s = event.at_s
    after = learn(state, event)
    effects = [
        *restarted_rules.end_stray(after, event),
        *live_rules.greet(after, event),
        *live_rules.locate(after, event),
        *live_rules.end_stalled(state, event),
    ]
    if isinstance(event, BusBack):
        effects.append(ReadStoredWorld())
    for reconcile in RULES:
        after, asked = reconcile(after, at_s)
        effects += asked
    for tell in (_tell_facts, _heartbeat, _leave):
        after, sent = tell(state, after, at_s)
        effects += sent
    return Decision(after, tuple(effects), why=_waiting_for(after), wake_at_s=_wake_at_s(after))


def _start_leaving(state: WorkerState, at_s: float) -> Step:
    rules = state.rules
    if state.leaving is not None:
        return state, []
    why = None
    grace_s = state.ending.grace_s
    if state.notice is not None and at_s >= state.notice.deadline_s - rules.notice_margin_s:
        why = f"the notice ({state.notice.source}) is over"
        grace_s = min(grace_s, rules.notice_margin_s / 2)
    elif not state.contact.connected and at_s >= state.contact.heard_at_s + rules.orphan_s:
        why = f"the bus was unreachable for {rules.orphan_s:.0f} s"
    if why is not None:
        return replace(state, leaving=Leaving(why, 0, grace_s)), []
    if state.host.is_unfit:
        return replace(state, leaving=Leaving(state.host.why, 1, grace_s, is_unfit=True)), []
    if state.host.phase is HostPhase.ABSENT and state.host.losses >= rules.host_losses_max:
        why = f"the host was lost {state.host.losses} times: {state.host.why}"
        return replace(state, leaving=Leaving(why, 1, grace_s)), []
    return state, []


def _stop_older(state: WorkerState, at_s: float) -> Step:
    if not state.trainers:
        return state, []
    overdue = live_rules.overdue_at_s(state)
    late = overdue is not None and at_s >= overdue
    ends = must_end(state, at_s) or may_end(state, at_s)
    if state.leaving is None and not ends and state.invitation.world is None and not late:
        return state, []
    if state.stop is not None and at_s < _stop_repeat_at_s(state, state.stop):
        return state, []
    grace_s = state.ending.grace_s if state.leaving is None else state.leaving.grace_s
    newest = max(trainer.generation for trainer in state.trainers)
    state = back_off(state, at_s) if late else state
    return replace(state, stop=Stop(grace_s, at_s)), [StopTrainers(newest, grace_s)]


def _obey(state: WorkerState, at_s: float) -> Step:
    """Obeys the newest halt or assignment as soon as no trainer prevents it."""
    if state.leaving is not None or (state.fence == state.generation and state.pending is None):
        return live_rules.count_entered(state), []
    if not can_obey(state):
        return state, []
    obeying = replace(
        state,
        generation=state.fence,
        standing=Standing.PARKED,
        world=state.pending,
        pending=None,
        stop=None,
        outcomes=replace(state.outcomes, forked=frozenset(), exits=()),
        progress=replace(state.progress, step=None, checkpoints=0),
    )
    if obeying.world is None:
        return obeying, []
    if obeying.member is None:
        return replace(obeying, standing=Standing.FREE), []
    member = replace(obeying, standing=Standing.MEMBER, invitation=replace(obeying.invitation, world=None))
    return live_rules.count_entered(live_rules.count_missing(member)), []


def _keep_host(state: WorkerState, at_s: float) -> Step:
    if state.host.phase is not HostPhase.ABSENT or state.leaving is not None or at_s < state.host.start_due_s:
        return state, []
    return replace(state, host=replace(state.host, phase=HostPhase.WARMING, since_s=at_s)), [StartHost()]


def _tell_facts(before: WorkerState, after: WorkerState, at_s: float) -> Step:
    effects: list[WorkerEffect] = []
    if before.notice is None and after.notice is not None:
        effects.append(TellNotice(after.notice.deadline_s - at_s, after.notice.source))
    facts = facts_of(before, after)
    if not facts:
        return after, effects
    switched = any(fact.name == "switched" for fact in facts)
    after = replace(
        after,
        outcomes=replace(after.outcomes, astray=()),
        progress=replace(after.progress, switched=after.generation if switched else after.progress.switched),
    )
    sent: list[WorkerEffect] = []
    for fact in facts:
        after = replace(after, contact=replace(after.contact, seq=after.contact.seq + 1))
        sent.append(TellFact(fact.name, status_of(after, at_s), exit=fact.exit, step=fact.step))
    if not any(fact.name == "parked" for fact in facts):
        return after, [*effects, *sent]
    # With live trainers, the master waits only for the fact itself; progress may follow.
    flushed = [*sent, FlushProgress()] if after.trainers else [FlushProgress(), *sent]
    return after, [*effects, *flushed]


def _heartbeat(before: WorkerState, after: WorkerState, at_s: float) -> Step:
    if not after.contact.connected or at_s < after.contact.heartbeat_due_s:
        return after, []
    after = replace(
        after, contact=replace(after.contact, seq=after.contact.seq + 1, heartbeat_due_s=at_s + after.rules.heartbeat_s)
    )
    lease = Lease(after.rules.lease_s)
    listening = [trainer for trainer in after.trainers if trainer.attached is not None]
    leases = [TellTrainer(trainer.generation, trainer.rank, lease) for trainer in listening]
    return after, [SendHeartbeat(status_of(after, at_s)), *leases]


def _leave(before: WorkerState, after: WorkerState, at_s: float) -> Step:
    if after.leaving is None or after.trainers:
        return after, []
    after = replace(after, left=True, stop=None, contact=replace(after.contact, seq=after.contact.seq + 1))
    leaving = after.leaving
    assert leaving is not None
    left = TellFact("left", status_of(after, at_s), why=leaving.why, is_unfit=leaving.is_unfit)
    return after, [FlushProgress(), left, Leave(leaving.code, leaving.why)]


RULES = (
    _start_leaving,
    live_rules.tell_trainers,
    _stop_older,
    _obey,
    live_rules.look,
    _keep_host,
    restarted_rules.fork,
    live_rules.fork_invited,
)
"""Rules that reconcile the state, in this order."""


def _stop_repeat_at_s(state: WorkerState, stop: Stop) -> float:
    return stop.asked_at_s + stop.grace_s + state.rules.stop_repeat_s


def _wake_at_s(state: WorkerState) -> float | None:
    if state.left:
        return None
    times: list[float] = []
    if state.contact.connected:
        times.append(state.contact.heartbeat_due_s)
    if state.stop is not None:
        times.append(_stop_repeat_at_s(state, state.stop))
    if state.leaving is None:
        times += live_rules.repeats_at_s(state)
        if is_parking(state):
            times.append(state.observation.due_s)
        if state.ending.by_s is not None and state.trainers and state.stop is None:
            times.append(state.ending.by_s)
        overdue_at_s = live_rules.overdue_at_s(state)
        if overdue_at_s is not None:
            times.append(overdue_at_s)
        if state.invitation.world is not None and not state.trainers and state.host.phase is HostPhase.WARM:
            times.append(state.invitation.due_s)
        if not state.contact.connected:
            times.append(state.contact.heard_at_s + state.rules.orphan_s)
        if state.host.phase is HostPhase.ABSENT:
            times.append(state.host.start_due_s)
        if state.notice is not None:
            times.append(state.notice.deadline_s - state.rules.notice_margin_s)
    return min(times, default=None)


def _waiting_for(state: WorkerState) -> str:
    if state.leaving is not None:
        return f"to leave: {state.leaving.why}" + (f"; {len(state.trainers)} trainers to end" if state.trainers else "")
    world = f"generation {state.generation}"
    match state.phase:
        case WorkerPhase.STOPPING if state.stop is None:
            return f"{_count_behind(state)} trainers of {world} to park for generation {state.fence}"
        case WorkerPhase.STOPPING:
            return f"{len(state.trainers)} trainers of {world} to end before generation {state.fence}"
        case WorkerPhase.WARMING:
            return "the host to import torch" + (f"; the last was lost: {state.host.why}" if state.host.why else "")
        case WorkerPhase.STARTING if state.world is not None and state.world.live is not None:
            return f"the trainers to enter {world}"
        case WorkerPhase.STARTING if state.host.phase is not HostPhase.WARM:
            return f"the host, to fork the trainers of {world}"
        case WorkerPhase.STARTING:
            return f"the trainers of {world} to be forked"
        case WorkerPhase.READY if state.planned:
            return f"the trainers of {world} to switch to generation {state.fence}"
        case WorkerPhase.READY:
            return f"the trainers of {world}, ranks {', '.join(map(str, state.ranks))}"
        case WorkerPhase.ENDED:
            return f"the master: all trainers of {world} have exited"
        case WorkerPhase.PARKED:
            return f"the assignment of {world}"
        case _:
            return _waiting_while_free(state, world)


def _count_behind(state: WorkerState) -> int:
    return sum(not trainer.clear_of(state.fence) for trainer in state.trainers)


def _waiting_while_free(state: WorkerState, world: str) -> str:
    if any(trainer.newborn and trainer.attached is None for trainer in state.trainers):
        return f"{len(state.trainers)} invited trainers to warm up"
    waiting = f" for {len(state.trainers)} warm trainers" if state.trainers else ""
    return f"an assignment{waiting}: no rank in {world}" if state.generation else f"an assignment{waiting}"
