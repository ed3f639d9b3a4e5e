"""Facts: what is new since the last event and is sent at once.

Each fact contains the whole status, so changes of one event need only one fact. Each exit has its own fact.
"""

from dataclasses import dataclass

from agents.worker.live import all_seen_alive, all_warm, has_switched, is_parking
from agents.worker.state import Standing, WorkerState
from messages.workers import TrainerExit, TrainerStatus, WorkerPhase


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    exit: TrainerExit | None = None
    step: int | None = None


def facts_of(before: WorkerState, after: WorkerState) -> list[Fact]:
    same_world = before.generation == after.generation
    exits = (*after.outcomes.astray, *after.outcomes.exits[len(before.outcomes.exits) if same_world else 0 :])
    facts = [Fact("peer_lost" if ended.peer_lost else "exited", exit=ended) for ended in exits]
    change = _change(before, after)
    return facts if change is None else [*facts, change]


def _change(before: WorkerState, after: WorkerState) -> Fact | None:
    moved = before.phase is not after.phase or before.generation != after.generation
    if before.phase is WorkerPhase.WARMING and after.phase in (WorkerPhase.IDLE, WorkerPhase.PARKED):
        return Fact("joined")
    if moved and (after.phase is WorkerPhase.PARKED or _handed_over(before, after)):
        return Fact("parked")
    if _newly_broken(before, after):
        return Fact("peer_lost")
    if before.observation.seen_at_s < after.observation.seen_at_s and is_parking(after) and all_seen_alive(after):
        return Fact("parking")
    step = _switched_at(after)
    if step is not None and after.progress.switched < after.generation:
        return Fact("switched", step=step)
    if moved and after.phase is WorkerPhase.READY:
        return Fact("ready")
    if all_warm(after) and not all_warm(before):
        return Fact("ready")
    if not moved and after.progress.checkpoints > before.progress.checkpoints:
        return Fact("ready")
    if has_switched(after) and _stands_otherwise(before, after):
        return Fact("ready")
    answered = after.observation.is_located and not before.observation.is_located
    return Fact("position") if answered or _is_elsewhere(before, after) else None


def _handed_over(before: WorkerState, after: WorkerState) -> bool:
    """True if this worker has left the world and its trainers have parked."""
    was_in = before.standing is Standing.MEMBER
    return was_in and after.standing is Standing.FREE and bool(after.trainers) and after.leaving is None


def _switched_at(state: WorkerState) -> int | None:
    """Returns the step at which training continues. Attached trainers report it; others prove it by a step."""
    said = _said(state)
    if said:
        return max(status.done for status in said) if has_switched(state) else None
    return state.progress.step


def _newly_broken(before: WorkerState, after: WorkerState) -> bool:
    return bool(_broken(after) - _broken(before)) and after.leaving is None


def _broken(state: WorkerState) -> set[tuple[int, int]]:
    """Returns local ranks that report their current world as broken, with its generation."""
    return {
        (status.local_rank, status.broken)
        for status in _said(state)
        if status.broken and status.broken >= status.generation and status.parked <= status.broken
    }


def _stands_otherwise(before: WorkerState, after: WorkerState) -> bool:
    """True if a trainer has changed whether it has the whole state or has finished. The master acts on both."""
    known = {status.local_rank: (status.active, status.finished) for status in _said(before)}
    return any(known.get(status.local_rank) != (status.active, status.finished) for status in _said(after))


def _is_elsewhere(before: WorkerState, after: WorkerState) -> bool:
    """True if a trainer's position changed. Trainers report positions only for long waits, or on request."""
    known = {status.local_rank: _place(status) for status in _said(before)}
    return any(known.get(status.local_rank, NOWHERE) != _place(status) for status in _said(after))


def _place(status: TrainerStatus) -> tuple[object, ...]:
    """Returns the fields of a status that describe the trainer's position."""
    return status.waiting, status.overdue, status.paused, status.located


NOWHERE = _place(TrainerStatus(0))


def _said(state: WorkerState) -> list[TrainerStatus]:
    return [trainer.attached for trainer in state.trainers if trainer.attached is not None]
