"""What must hold after each event, of the new state alone and compared with the previous one."""

from agents.worker.state import Standing, WorkerState
from agents.worker.trainer import Trainer
from messages.workers import WorkerPhase

_WITHOUT_TRAINERS = (WorkerPhase.IDLE, WorkerPhase.PARKED, WorkerPhase.ENDED)


def check(before: WorkerState, after: WorkerState) -> list[str]:
    """Returns a message for each broken invariant."""
    return [*_of_one(after), *_of_both(before, after)]


def _of_one(state: WorkerState) -> list[str]:
    broken = []
    alive = [trainer.birth for trainer in state.trainers]
    locally = [trainer.local_rank for trainer in state.trainers]
    ended = [ended.rank for ended in state.outcomes.exits]
    behind = [trainer.birth for trainer in state.trainers if not trainer.clear_of(state.generation)]
    if behind:
        broken.append(f"obeys {state.generation} while trainers born as {behind} may be in an older world")
    if len(alive) != len(set(alive)) or locally != sorted(set(locally)):
        broken.append(f"a trainer is held twice: born as {alive}, local ranks {locally}")
    if len(ended) != len(set(ended)) or not set(ended) <= set(state.ranks):
        broken.append(f"ranks {ended} ended, but the worker has ranks {list(state.ranks)}")
    if state.standing is Standing.MEMBER and {state.current_rank(t) for t in state.trainers} & set(ended):
        broken.append(f"a rank is alive and ended: born as {alive}, ended {ended}")
    if state.phase is WorkerPhase.READY and not set(state.ranks) <= state.outcomes.forked:
        broken.append(f"ready, but of ranks {list(state.ranks)} only {sorted(state.outcomes.forked)} were forked")
    if state.phase in _WITHOUT_TRAINERS and any(_is_unreachable(trainer) for trainer in state.trainers):
        broken.append(f"{state.phase} with trainers born as {alive} that cannot get commands")
    if state.left and state.trainers:
        broken.append(f"left trainers born as {alive} behind")
    if state.generation > state.fence:
        broken.append(f"obeys generation {state.generation}, which is above the fence {state.fence}")
    if state.pending is not None and state.pending.generation != state.fence:
        broken.append(f"remembers an assignment of generation {state.pending.generation}, fence {state.fence}")
    return broken


def _is_unreachable(trainer: Trainer) -> bool:
    """True if the trainer never attached and is not invited."""
    return trainer.attached is None and trainer.detached_at_s is None and not trainer.newborn


def _of_both(before: WorkerState, after: WorkerState) -> list[str]:
    broken = [
        f"{name} went back from {old} to {new}"
        for name, old, new in (
            ("generation", before.generation, after.generation),
            ("fence", before.fence, after.fence),
            ("seq", before.contact.seq, after.contact.seq),
            ("epoch", before.contact.epoch, after.contact.epoch),
        )
        if new < old
    ]
    if before.leaving is not None and after.leaving is None:
        broken.append("no longer leaves")
    if before.left and after != before:
        broken.append("did something after it had left")
    return broken
