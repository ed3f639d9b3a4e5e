"""Rules for live trainers: scripts with the SDK, which stay alive while the world changes around them."""

from dataclasses import replace

from msgspec import structs

from agents.worker.commands import Enter, Lease, Locate
from agents.worker.effects import AbortTrainer, ForkTrainers, LookAtTrainers, Step, TellTrainer, WorkerEffect
from agents.worker.events import EndStalledHeard, LocateHeard, TrainerAttached, WorkerEvent
from agents.worker.live import command_for, entered, is_parking, needs_trainers
from agents.worker.state import HostPhase, WorkerState, own_place
from agents.worker.trainer import Told, Trainer, a_forked
from messages.ids import Rank
from messages.workers import TrainerExit


def greet(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """A trainer that has just attached need not wait for the next heartbeat to know that the bus is there."""
    if not isinstance(event, TrainerAttached) or not state.contact.connected:
        return []
    known = state.trainer((event.generation, event.rank)) is not None
    return [TellTrainer(event.generation, event.rank, Lease(state.rules.lease_s))] if known else []


def locate(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Trainers answer for themselves if they can; the kernel says which of them run."""
    if not isinstance(event, LocateHeard) or state.observation.is_located:
        return []
    attached = [trainer for trainer in state.trainers if trainer.attached is not None]
    return [*(TellTrainer(trainer.generation, trainer.rank, Locate()) for trainer in attached), LookAtTrainers()]


def end_stalled(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
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


def tell_trainers(state: WorkerState, at_s: float) -> Step:
    effects: list[WorkerEffect] = []
    trainers = []
    for trainer in state.trainers:
        command = command_for(state, trainer)
        told = trainer.told
        known = told is not None and told.command == command and at_s < told.at_s + state.rules.repeat_s
        if command is not None and not known:
            effects.append(TellTrainer(trainer.generation, trainer.rank, command))
            trainer = _on_the_way(replace(trainer, told=Told(command, at_s)))
        trainers.append(trainer)
    return (replace(state, trainers=tuple(trainers)), effects) if effects else (state, [])


def _on_the_way(trainer: Trainer) -> Trainer:
    if trainer.told is None or not isinstance(trainer.told.command, Enter) or trainer.entered:
        return trainer
    above = max(trainer.above, trainer.told.command.world.generation) if trainer.newborn else trainer.above
    return replace(trainer, entered=True, above=above)


def look(state: WorkerState, at_s: float) -> Step:
    """A trainer that is slow to park differs from a stopped one: the master waits longer for it."""
    if not is_parking(state) or at_s < state.observation.due_s:
        return state, []
    return replace(state, observation=replace(state.observation, due_s=at_s + state.rules.look_s)), [LookAtTrainers()]


def fork_invited(state: WorkerState, at_s: float) -> Step:
    """Forks trainers ahead of the world that will take them; they are not reported until they are warm."""
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


def count_entered(state: WorkerState) -> WorkerState:
    if state.world is None or state.world.hot is None:
        return state
    came = entered(state)
    return (
        state
        if came <= state.outcomes.forked
        else replace(state, outcomes=replace(state.outcomes, forked=state.outcomes.forked | came))
    )


def overdue_at_s(state: WorkerState) -> float | None:
    """When invited trainers that have not attached are given up."""
    waiting = any(trainer.newborn and trainer.attached is None for trainer in state.trainers)
    return state.invitation.forked_at_s + state.rules.attach_s if waiting and state.stop is None else None


def repeats_at_s(state: WorkerState) -> list[float]:
    """When a command to a trainer is repeated, or the trainer is given up because it does not answer."""
    since = [
        trainer.told.at_s
        for trainer in state.trainers
        if trainer.told is not None and command_for(state, trainer) is not None
    ]
    if not state.planned and state.stop is None:
        since += [
            trainer.detached_at_s
            for trainer in state.trainers
            if trainer.detached_at_s is not None and not trainer.clear_of(state.fence)
        ]
    return [at_s + state.rules.repeat_s for at_s in since]
