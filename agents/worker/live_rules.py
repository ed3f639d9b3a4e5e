"""Rules for live trainers: scripts with the SDK, which stay alive while the world changes around them."""

from dataclasses import replace

from msgspec import structs

from agents.worker.commands import Enter, Lease, Locate
from agents.worker.effects import AbortTrainer, ForkTrainers, LookAtTrainers, Step, TellTrainer, WorkerEffect
from agents.worker.events import EndStalledHeard, LocateHeard, TrainerAttached, WorkerEvent
from agents.worker.live import command_for, entered, is_parking, needs_trainers
from agents.worker.state import HostPhase, WorkerState, own_place
from agents.worker.trainer import SentCommand, Trainer, a_forked
from messages.ids import Rank
from messages.workers import TrainerExit


def greet(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Tells a trainer that has just attached that the bus is connected, before the next heartbeat does."""
    if not isinstance(event, TrainerAttached) or not state.contact.connected:
        return []
    known = state.trainer((event.generation, event.rank)) is not None
    return [TellTrainer(event.generation, event.rank, Lease(state.rules.lease_s))] if known else []


def locate(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Requests the positions of all trainers. The kernel shows which of them run if they cannot answer."""
    if not isinstance(event, LocateHeard) or state.observation.is_located:
        return []
    attached = [trainer for trainer in state.trainers if trainer.attached is not None]
    return [*(TellTrainer(trainer.generation, trainer.rank, Locate()) for trainer in attached), LookAtTrainers()]


def end_stalled(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Ends stalled ranks, unless their world was halted. The master repeats the order, so it is not stored."""
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


def tell_trainers(state: WorkerState, at_s: float) -> Step:
    effects: list[WorkerEffect] = []
    trainers = []
    for trainer in state.trainers:
        command = command_for(state, trainer)
        sent = trainer.sent
        known = sent is not None and sent.command == command and at_s < sent.at_s + state.rules.repeat_s
        if command is not None and not known:
            effects.append(TellTrainer(trainer.generation, trainer.rank, command))
            trainer = _entering(replace(trainer, sent=SentCommand(command, at_s)))
        trainers.append(trainer)
    return (replace(state, trainers=tuple(trainers)), effects) if effects else (state, [])


def _entering(trainer: Trainer) -> Trainer:
    if trainer.sent is None or not isinstance(trainer.sent.command, Enter) or trainer.entered:
        return trainer
    above = max(trainer.above, trainer.sent.command.world.generation) if trainer.newborn else trainer.above
    return replace(trainer, entered=True, above=above)


def look(state: WorkerState, at_s: float) -> Step:
    """Looks at trainers that have not parked. The master waits longer for a slow trainer than for a stopped one."""
    if not is_parking(state) or at_s < state.observation.due_s:
        return state, []
    return replace(state, observation=replace(state.observation, due_s=at_s + state.rules.look_s)), [LookAtTrainers()]


def fork_invited(state: WorkerState, at_s: float) -> Step:
    """Forks trainers before the world that they will enter. They are reported when they are warm."""
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


def count_missing(state: WorkerState) -> WorkerState:
    """Adds exits for ranks of a live world whose trainers ended before the world began."""
    if state.world is None or state.world.live is None:
        return state
    alive = {trainer.local_rank for trainer in state.trainers}
    fallen = {each.local_rank: each.exit for each in state.outcomes.fallen}
    error = f"the trainer ended before generation {state.generation} began"
    missing = (
        structs.replace(fallen[local_rank], rank=rank)
        if local_rank in fallen
        else TrainerExit(rank=rank, signal="SIGKILL", error=error)
        for local_rank, rank in enumerate(state.ranks)
        if local_rank not in alive
    )
    return replace(state, outcomes=replace(state.outcomes, exits=tuple(missing), fallen=()))


def count_entered(state: WorkerState) -> WorkerState:
    if state.world is None or state.world.live is None:
        return state
    came = entered(state)
    return (
        state
        if came <= state.outcomes.forked
        else replace(state, outcomes=replace(state.outcomes, forked=state.outcomes.forked | came))
    )


def overdue_at_s(state: WorkerState) -> float | None:
    """Returns when invited trainers that have not attached are abandoned."""
    waiting = any(trainer.newborn and trainer.attached is None for trainer in state.trainers)
    return state.invitation.forked_at_s + state.rules.attach_s if waiting and state.stop is None else None


def repeats_at_s(state: WorkerState) -> list[float]:
    """Returns when commands are repeated, or trainers without an answer are abandoned."""
    since = [
        trainer.sent.at_s
        for trainer in state.trainers
        if trainer.sent is not None and command_for(state, trainer) is not None
    ]
    if not state.planned and state.stop is None:
        since += [
            trainer.detached_at_s
            for trainer in state.trainers
            if trainer.detached_at_s is not None and not trainer.clear_of(state.fence)
        ]
    return [at_s + state.rules.repeat_s for at_s in since]
