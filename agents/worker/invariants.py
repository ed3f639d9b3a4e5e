"""What must hold after each event, of the state alone and against the one before."""

from agents.worker.state import WorkerState
from messages.workers import WorkerPhase

_WITHOUT_TRAINERS = (WorkerPhase.IDLE, WorkerPhase.PARKED, WorkerPhase.ENDED)


def check(before: WorkerState, after: WorkerState) -> list[str]:
    """What is broken; empty if all holds."""
    return [*_of_one(after), *_of_both(before, after)]


def _of_one(state: WorkerState) -> list[str]:
    broken = []
    alive = [trainer.rank for trainer in state.trainers]
    ended = [ended.rank for ended in state.exits]
    generations = {trainer.generation for trainer in state.trainers}
    if generations - {state.generation}:
        broken.append(f"trainers of generations {sorted(generations)} while it obeys {state.generation}")
    if len(alive) != len(set(alive)) or len(ended) != len(set(ended)) or set(alive) & set(ended):
        broken.append(f"a rank is held or ended twice: alive {alive}, ended {ended}")
    if not set(alive + ended) <= set(state.ranks):
        broken.append(f"ranks {alive} alive and {ended} ended, but it was given {list(state.ranks)}")
    if state.phase is WorkerPhase.READY and not set(state.ranks) <= state.forked:
        broken.append(f"ready, but of ranks {list(state.ranks)} only {sorted(state.forked)} were forked")
    if state.phase in _WITHOUT_TRAINERS and state.trainers:
        broken.append(f"{state.phase} with trainers of ranks {alive}")
    if state.left and state.trainers:
        broken.append(f"left trainers of ranks {alive} behind")
    if state.generation > state.fence:
        broken.append(f"obeys generation {state.generation}, which it has not heard of (fence {state.fence})")
    if state.pending is not None and state.pending.generation != state.fence:
        broken.append(f"remembers an assignment of generation {state.pending.generation}, fence {state.fence}")
    return broken


def _of_both(before: WorkerState, after: WorkerState) -> list[str]:
    broken = [
        f"{name} went back from {old} to {new}"
        for name, old, new in (
            ("generation", before.generation, after.generation),
            ("fence", before.fence, after.fence),
            ("seq", before.seq, after.seq),
            ("epoch", before.epoch, after.epoch),
        )
        if new < old
    ]
    if before.generation < after.generation and any(t.generation < after.generation for t in after.trainers):
        broken.append(f"obeys generation {after.generation} before older trainers have ended")
    if before.leaving is not None and after.leaving is None:
        broken.append("changed its mind about leaving")
    if before.left and after != before:
        broken.append("did something after it had left")
    return broken
