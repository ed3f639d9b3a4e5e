"""Learn from the event, then reconcile, then tell what is new.

A fact is told once and fast; the status that it carries is repeated by every heartbeat, so no fact needs an answer.
"""

from dataclasses import replace

from msgspec import structs

from agents.worker.effects import (
    AbortTrainer,
    FlushProgress,
    ForkTrainers,
    Leave,
    LookAtTrainers,
    SendHeartbeat,
    StartHost,
    StopTrainers,
    TellFact,
    TellNotice,
    TellTrainer,
    WorkerEffect,
)
from agents.worker.events import EndStalledHeard, LocateHeard, TrainerAttached, TrainerForked, WorkerEvent
from agents.worker.hot import can_obey, entered, is_parking, may_end, must_end, needs_trainers, word_for
from agents.worker.learn import learn
from agents.worker.learn_trainers import back_off
from agents.worker.news import facts_of
from agents.worker.state import HostPhase, Leaving, Standing, Stop, WorkerState, own_place, status_of
from agents.worker.trainer import Told, Trainer, a_forked
from agents.worker.waiting import waiting_for
from agents.worker.words import Enter, Lease, Locate
from messages.ids import Rank
from messages.workers import TrainerExit
from runtime.decision import Decision

Step = tuple[WorkerState, list[WorkerEffect]]


def decide(state: WorkerState, event: WorkerEvent) -> Decision[WorkerState, WorkerEffect]:
    if state.left:
        return Decision(state, why="it has left")
    at_s = event.at_s
    after = learn(state, event)
    effects = [*_stray(after, event), *_greet(after, event), *_locate(after, event), *_end_stalled(state, event)]
    for reconcile in (_go_in_time, _tell_trainers, _stop_older, _obey, _look, _keep_host, _fork, _fork_invited):
        after, asked = reconcile(after, at_s)
        effects += asked
    for tell in (_tell_news, _heartbeat, _leave):
        after, told = tell(state, after, at_s)
        effects += told
    return Decision(after, tuple(effects), why=waiting_for(after), wake_at_s=_wake_at_s(after))


def _stray(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """A trainer of a dead generation that nobody counts any more must not live on."""
    if not isinstance(event, TrainerForked) or event.generation >= state.generation:
        return []
    counted = any(trainer.generation <= event.generation for trainer in state.trainers)
    return [] if counted else [StopTrainers(event.generation, 0.0)]


def _greet(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """A trainer that has just attached need not wait for the next heartbeat to know that the bus is there."""
    if not isinstance(event, TrainerAttached) or not state.contact.connected:
        return []
    known = state.trainer((event.generation, event.rank)) is not None
    return [TellTrainer(event.generation, event.rank, Lease(state.rules.lease_s))] if known else []


def _locate(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Trainers answer for themselves if they can; the kernel says which of them run."""
    if not isinstance(event, LocateHeard) or state.observation.is_located:
        return []
    attached = [trainer for trainer in state.trainers if trainer.attached is not None]
    return [*(TellTrainer(trainer.generation, trainer.rank, Locate()) for trainer in attached), LookAtTrainers()]


def _end_stalled(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Not in a world that was halted since. Asked again until the exits are known, so nothing is remembered of it."""
    if not isinstance(event, EndStalledHeard) or event.order.job != state.identity.job:
        return []
    order, is_old = event.order, (event.epoch or 0) < state.contact.epoch
    halted = state.fence > state.generation and not state.planned
    worlds = (world for world in (state.world, state.pending) if world is not None)
    world = next((world for world in worlds if world.generation == order.generation), None)
    place = own_place(state.identity.worker, world)
    if is_old or halted or place is None or state.stop is not None:
        return []
    return [
        AbortTrainer(trainer.generation, trainer.rank, order.why)
        for trainer in state.trainers
        if trainer.attached is not None and place.first_rank + trainer.local_rank in order.ranks
    ]


def _go_in_time(state: WorkerState, at_s: float) -> Step:
    rules = state.rules
    if state.leaving is not None:
        return state, []
    why = None
    grace_s = state.ending.grace_s
    if state.notice is not None and at_s >= state.notice.deadline_s - rules.notice_margin_s:
        why = f"the notice ({state.notice.source}) has run out"
        grace_s = min(grace_s, rules.notice_margin_s / 2)
    elif not state.contact.connected and at_s >= state.contact.heard_at_s + rules.orphan_s:
        why = f"the bus was away for {rules.orphan_s:.0f} s"
    if why is not None:
        return replace(state, leaving=Leaving(why, 0, grace_s)), []
    if state.host.is_unfit:
        return replace(state, leaving=Leaving(state.host.why, 1, grace_s, is_unfit=True)), []
    if state.host.phase is HostPhase.ABSENT and state.host.losses >= rules.host_losses_max:
        why = f"the host was lost {state.host.losses} times: {state.host.why}"
        return replace(state, leaving=Leaving(why, 1, grace_s)), []
    return state, []


def _tell_trainers(state: WorkerState, at_s: float) -> Step:
    effects: list[WorkerEffect] = []
    trainers = []
    for trainer in state.trainers:
        word = word_for(state, trainer)
        told = trainer.told
        known = told is not None and told.word == word and at_s < told.at_s + state.rules.repeat_s
        if word is not None and not known:
            effects.append(TellTrainer(trainer.generation, trainer.rank, word))
            trainer = _on_the_way(replace(trainer, told=Told(word, at_s)))
        trainers.append(trainer)
    return (replace(state, trainers=tuple(trainers)), effects) if effects else (state, [])


def _on_the_way(trainer: Trainer) -> Trainer:
    if trainer.told is None or not isinstance(trainer.told.word, Enter) or trainer.entered:
        return trainer
    above = max(trainer.above, trainer.told.word.world.generation) if trainer.newborn else trainer.above
    return replace(trainer, entered=True, above=above)


def _stop_older(state: WorkerState, at_s: float) -> Step:
    if not state.trainers:
        return state, []
    overdue = _overdue_at_s(state)
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
    """The newest halt or assignment, once no trainer stands in its way."""
    if state.leaving is not None or (state.fence == state.generation and state.pending is None):
        return _count_entered(state), []
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
    return _count_entered(
        _count_missing(replace(obeying, standing=Standing.MEMBER, invitation=replace(obeying.invitation, world=None)))
    ), []


def _look(state: WorkerState, at_s: float) -> Step:
    """Who is slow to park is told apart from who is stopped: the master waits longer for the former."""
    if not is_parking(state) or at_s < state.observation.due_s:
        return state, []
    return replace(state, observation=replace(state.observation, due_s=at_s + state.rules.look_s)), [LookAtTrainers()]


def _count_missing(state: WorkerState) -> WorkerState:
    """Ranks of a world that nobody is forked for, and whose trainers ended before it began."""
    if state.world is None or state.world.hot is None:
        return state
    alive = {trainer.local_rank for trainer in state.trainers}
    fallen = {each.local_rank: each.exit for each in state.outcomes.fallen}
    error = f"it had ended before generation {state.generation} began"
    missing = (
        structs.replace(fallen[local_rank], rank=rank)
        if local_rank in fallen
        else TrainerExit(rank=rank, signal="SIGKILL", error=error)
        for local_rank, rank in enumerate(state.ranks)
        if local_rank not in alive
    )
    return replace(state, outcomes=replace(state.outcomes, exits=tuple(missing), fallen=()))


def _count_entered(state: WorkerState) -> WorkerState:
    if state.world is None or state.world.hot is None:
        return state
    came = entered(state)
    return (
        state
        if came <= state.outcomes.forked
        else replace(state, outcomes=replace(state.outcomes, forked=state.outcomes.forked | came))
    )


def _keep_host(state: WorkerState, at_s: float) -> Step:
    if state.host.phase is not HostPhase.ABSENT or state.leaving is not None or at_s < state.host.start_due_s:
        return state, []
    return replace(state, host=replace(state.host, phase=HostPhase.WARMING, since_s=at_s)), [StartHost()]


def _fork(state: WorkerState, at_s: float) -> Step:
    world = state.world
    untouched = not state.trainers and not state.outcomes.exits and state.fence == state.generation
    if world is None or world.hot is not None or not state.ranks or not untouched:
        return state, []
    if state.host.phase is not HostPhase.WARM or state.leaving:
        return state, []
    trainers = tuple(a_forked(state.generation, rank, local_rank) for local_rank, rank in enumerate(state.ranks))
    return replace(state, trainers=trainers), [ForkTrainers(world)]


def _fork_invited(state: WorkerState, at_s: float) -> Step:
    """Ahead of a world that will take them; nothing is told of them until they are warm."""
    world = state.invitation.world
    if (
        world is None
        or state.trainers
        or state.leaving
        or state.host.phase is not HostPhase.WARM
        or at_s < state.invitation.due_s
    ):
        return state, []
    if not needs_trainers(state):
        return replace(state, invitation=replace(state.invitation, world=None)), []
    trainers = tuple(
        a_forked(world.generation, Rank(world.world_size + local_rank), local_rank, invited=True)
        for local_rank in range(state.identity.slots)
    )
    forked = ForkTrainers(world, invited=True, terms=state.invitation.terms)
    return replace(state, trainers=trainers, invitation=replace(state.invitation, world=None, forked_at_s=at_s)), [
        forked
    ]


def _tell_news(before: WorkerState, after: WorkerState, at_s: float) -> Step:
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
    told: list[WorkerEffect] = []
    for fact in facts:
        after = replace(after, contact=replace(after.contact, seq=after.contact.seq + 1))
        told.append(TellFact(fact.name, status_of(after, at_s), exit=fact.exit, step=fact.step))
    if not any(fact.name == "parked" for fact in facts):
        return after, [*effects, *told]
    # Those who wait for trainers that live on wait for nothing else.
    flushed = [*told, FlushProgress()] if after.trainers else [FlushProgress(), *told]
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


def _stop_repeat_at_s(state: WorkerState, stop: Stop) -> float:
    return stop.asked_at_s + stop.grace_s + state.rules.stop_repeat_s


def _overdue_at_s(state: WorkerState) -> float | None:
    """When invited trainers that have not attached are given up."""
    waiting = any(trainer.newborn and trainer.attached is None for trainer in state.trainers)
    return state.invitation.forked_at_s + state.rules.attach_s if waiting and state.stop is None else None


def _repeats_at_s(state: WorkerState) -> list[float]:
    """When a trainer is told again, or given up because it does not come back to be told."""
    since = [
        trainer.told.at_s
        for trainer in state.trainers
        if trainer.told is not None and word_for(state, trainer) is not None
    ]
    if not state.planned and state.stop is None:
        since += [
            trainer.detached_at_s
            for trainer in state.trainers
            if trainer.detached_at_s is not None and not trainer.clear_of(state.fence)
        ]
    return [at_s + state.rules.repeat_s for at_s in since]


def _wake_at_s(state: WorkerState) -> float | None:
    if state.left:
        return None
    times: list[float] = []
    if state.contact.connected:
        times.append(state.contact.heartbeat_due_s)
    if state.stop is not None:
        times.append(_stop_repeat_at_s(state, state.stop))
    if state.leaving is None:
        times += _repeats_at_s(state)
        if is_parking(state):
            times.append(state.observation.due_s)
        if state.ending.by_s is not None and state.trainers and state.stop is None:
            times.append(state.ending.by_s)
        overdue_at_s = _overdue_at_s(state)
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
