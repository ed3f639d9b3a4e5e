"""Questions about trainers that live through changes of the world: who stands in the way, who is told what."""

from agents.worker.commands import Enter, Park, TrainerCommand
from agents.worker.state import Standing, WorkerState, own_place
from agents.worker.trainer import Trainer
from messages.ids import Generation, Rank
from messages.worlds import Assignment, Entry


def can_obey(state: WorkerState) -> bool:
    """Whether no trainer stands in the way of the newest halt or assignment."""
    world = state.pending
    if state.ending.by_s is not None or (world is not None and world.hot is None):
        return not state.trainers
    if state.planned and state.outcomes.exits:
        return False  # The world before has lost a rank: nobody gets out of it by plan.
    place = own_place(state.identity.worker, world)
    if world is not None and place is not None and state.planned:
        entered = {trainer.local_rank for trainer in state.trainers if trainer.shows(world.generation)}
        return entered.issuperset(range(place.ranks))
    return all(trainer.clear_of(state.fence) for trainer in state.trainers)


def is_parking(state: WorkerState) -> bool:
    """Whether trainers that live on were halted and have not all said that they parked."""
    halted = state.fence > state.generation and state.pending is None
    return halted and state.stop is None and state.leaving is None and bool(_behind(state))


def all_seen_alive(state: WorkerState) -> bool:
    """Whether each trainer that still has to park was alive when it was last looked at."""
    return all(t.attached is not None and t.attached.parking == state.fence for t in _behind(state))


def must_end(state: WorkerState, at_s: float) -> bool:
    """Whether the trainers have to be ended before the newest halt or assignment can be obeyed.

    They share their fate: where one does not listen, its neighbours' world is lost too."""
    if state.fence <= state.generation and state.pending is None:
        return False
    if state.pending is not None and state.pending.hot is None:
        return True
    if state.planned:
        return False
    patience_s = state.rules.repeat_s
    return any(t.deaf(at_s, patience_s) and not t.clear_of(state.fence) for t in state.trainers)


def may_end(state: WorkerState, at_s: float) -> bool:
    """Whether trainers after whose world none follows get their signal now.

    A parked trainer saves its state when it gets SIGTERM. So they park first, within bounds."""
    if state.ending.by_s is None:
        return False
    return at_s >= state.ending.by_s or all(not t.is_live or t.clear_of(state.fence) for t in state.trainers)


def needs_trainers(state: WorkerState) -> bool:
    """Whether an invitation finds it with fewer trainers than it could bring."""
    alive = [trainer for trainer in state.trainers if trainer.detached_at_s is None]
    return state.standing is not Standing.MEMBER and len(alive) < state.identity.slots


def all_warm(state: WorkerState) -> bool:
    """Whether everybody it was invited to bring waits to be taken into a world."""
    return len(state.trainers) == state.identity.slots and all(
        trainer.newborn and trainer.attached is not None for trainer in state.trainers
    )


def entered(state: WorkerState) -> set[Rank]:
    """The ranks of the obeyed world whose trainers have said that they are in it."""
    ranks = state.ranks
    return {
        ranks[trainer.local_rank]
        for trainer in state.trainers
        if trainer.local_rank < len(ranks) and trainer.shows(state.generation)
    }


def has_switched(state: WorkerState) -> bool:
    return bool(state.ranks) and entered(state).issuperset(state.ranks)


def command_for(state: WorkerState, trainer: Trainer) -> TrainerCommand | None:
    """What an attached trainer has to be told, as long as it does not show it."""
    if trainer.attached is None or state.leaving is not None or state.stop is not None:
        return None
    world = state.pending or (state.world if state.fence == state.generation else None)
    if world is None:
        return None if trainer.clear_of(state.fence) else Park(state.fence)
    if world.hot is None:
        return _start(state, trainer, world)
    place = own_place(state.identity.worker, world)
    if place is None or trainer.local_rank >= place.ranks:
        return _farewell(trainer, world, world.hot.entry)
    if trainer.shows(world.generation):
        return None
    return Enter(world, Rank(place.first_rank + trainer.local_rank))


def _behind(state: WorkerState) -> list[Trainer]:
    return [trainer for trainer in state.trainers if not trainer.clear_of(state.fence)]


def _start(state: WorkerState, trainer: Trainer, world: Assignment) -> TrainerCommand | None:
    forked_for_it = trainer.generation == world.generation and not trainer.invited
    if not forked_for_it or trainer.shows(world.generation):
        return None
    return Enter(world, state.present_rank(trainer))


def _farewell(trainer: Trainer, world: Assignment, entry: Entry) -> TrainerCommand | None:
    if trainer.clear_of(world.generation):
        return None
    if entry is Entry.PLANNED and _trains(trainer, world.generation):
        return Enter(world, trainer.attached.rank if trainer.attached is not None else trainer.rank, leaves=True)
    return Park(world.generation)


def _trains(trainer: Trainer, below: Generation) -> bool:
    status = trainer.attached
    return status is not None and 0 < status.generation < below and status.parked <= status.generation
