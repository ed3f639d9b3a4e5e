"""Queries about live trainers: which prevent the next world, and which command each must get."""

from agents.worker.commands import Enter, Park, TrainerCommand
from agents.worker.state import Standing, WorkerState, own_place
from agents.worker.trainer import Trainer
from messages.ids import Generation, Rank
from messages.worlds import Assignment, Entry


def can_obey(state: WorkerState) -> bool:
    """True if no trainer prevents the newest halt or assignment."""
    world = state.pending
    if state.ending.by_s is not None or (world is not None and world.live is None):
        return not state.trainers
    if state.planned and state.outcomes.exits:
        return False  # The previous world has lost a rank, so its trainers cannot leave it as planned.
    place = own_place(state.identity.worker, world)
    if world is not None and place is not None and state.planned:
        entered = {trainer.local_rank for trainer in state.trainers if trainer.shows(world.generation)}
        return entered.issuperset(range(place.ranks))
    return all(trainer.clear_of(state.fence) for trainer in state.trainers)


def is_parking(state: WorkerState) -> bool:
    """True if live trainers were halted and have not all confirmed that they parked."""
    halted = state.fence > state.generation and state.pending is None
    return halted and state.stop is None and state.leaving is None and bool(_behind(state))


def all_seen_alive(state: WorkerState) -> bool:
    """True if each trainer that still has to park was alive at the last look."""
    return all(t.attached is not None and t.attached.parking == state.fence for t in _behind(state))


def must_end(state: WorkerState, at_s: float) -> bool:
    """True if the trainers must be ended before the newest halt or assignment can be obeyed.

    One trainer that cannot get commands is enough: the world of its neighbours is lost too."""
    if state.fence <= state.generation and state.pending is None:
        return False
    if state.pending is not None and state.pending.live is None:
        return True
    if state.planned:
        return False
    patience_s = state.rules.repeat_s
    return any(t.deaf(at_s, patience_s) and not t.clear_of(state.fence) for t in state.trainers)


def may_end(state: WorkerState, at_s: float) -> bool:
    """True if trainers get their signal now, because no world follows theirs.

    A parked trainer saves its state when it gets SIGTERM, so trainers park first, for a bounded time."""
    if state.ending.by_s is None:
        return False
    return at_s >= state.ending.by_s or all(not t.is_live or t.clear_of(state.fence) for t in state.trainers)


def needs_trainers(state: WorkerState) -> bool:
    """True if the worker is in no world and has fewer trainers than slots."""
    alive = [trainer for trainer in state.trainers if trainer.detached_at_s is None]
    return state.standing is not Standing.MEMBER and len(alive) < state.identity.slots


def all_warm(state: WorkerState) -> bool:
    """True if an invited trainer waits in each slot."""
    return len(state.trainers) == state.identity.slots and all(
        trainer.newborn and trainer.attached is not None for trainer in state.trainers
    )


def entered(state: WorkerState) -> set[Rank]:
    """Returns the ranks of the obeyed world whose trainers have confirmed that they are in it."""
    ranks = state.ranks
    return {
        ranks[trainer.local_rank]
        for trainer in state.trainers
        if trainer.local_rank < len(ranks) and trainer.shows(state.generation)
    }


def has_switched(state: WorkerState) -> bool:
    return bool(state.ranks) and entered(state).issuperset(state.ranks)


def command_for(state: WorkerState, trainer: Trainer) -> TrainerCommand | None:
    """Returns the command that an attached trainer needs, until its status shows the effect."""
    if trainer.attached is None or state.leaving is not None or state.stop is not None:
        return None
    world = state.pending or (state.world if state.fence == state.generation else None)
    if world is None:
        return None if trainer.clear_of(state.fence) else Park(state.fence)
    if world.live is None:
        return _start(state, trainer, world)
    place = own_place(state.identity.worker, world)
    if place is None or trainer.local_rank >= place.ranks:
        return _leave_world(trainer, world, world.live.entry)
    if trainer.shows(world.generation):
        return None
    return Enter(world, Rank(place.first_rank + trainer.local_rank))


def _behind(state: WorkerState) -> list[Trainer]:
    return [trainer for trainer in state.trainers if not trainer.clear_of(state.fence)]


def _start(state: WorkerState, trainer: Trainer, world: Assignment) -> TrainerCommand | None:
    forked_for_it = trainer.generation == world.generation and not trainer.invited
    if not forked_for_it or trainer.shows(world.generation):
        return None
    return Enter(world, state.current_rank(trainer))


def _leave_world(trainer: Trainer, world: Assignment, entry: Entry) -> TrainerCommand | None:
    if trainer.clear_of(world.generation):
        return None
    if entry is Entry.PLANNED and _trains(trainer, world.generation):
        return Enter(world, trainer.attached.rank if trainer.attached is not None else trainer.rank, leaves=True)
    return Park(world.generation)


def _trains(trainer: Trainer, below: Generation) -> bool:
    status = trainer.attached
    return status is not None and 0 < status.generation < below and status.parked <= status.generation
