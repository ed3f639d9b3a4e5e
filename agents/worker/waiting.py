"""What a worker-agent waits for, in words."""

from agents.worker.state import HostPhase, WorkerState
from messages.workers import WorkerPhase


def waiting_for(state: WorkerState) -> str:
    if state.leaving is not None:
        return f"leaves: {state.leaving.why}" + (f"; {len(state.trainers)} trainers to end" if state.trainers else "")
    world = f"generation {state.generation}"
    match state.phase:
        case WorkerPhase.STOPPING if state.stop is None:
            return f"{_behind(state)} trainers of {world} to park for generation {state.fence}"
        case WorkerPhase.STOPPING:
            return f"{len(state.trainers)} trainers of {world} to end before generation {state.fence}"
        case WorkerPhase.WARMING:
            return "the host to import torch" + (f"; it was lost: {state.host.why}" if state.host.why else "")
        case WorkerPhase.STARTING if state.world is not None and state.world.hot is not None:
            return f"the trainers to come into {world}"
        case WorkerPhase.STARTING if state.host.phase is not HostPhase.WARM:
            return f"the host, to fork the trainers of {world}"
        case WorkerPhase.STARTING:
            return f"the trainers of {world} to be forked"
        case WorkerPhase.READY if state.planned:
            return f"the trainers of {world} to go over to generation {state.fence}"
        case WorkerPhase.READY:
            return f"the trainers of {world}, ranks {', '.join(map(str, state.ranks))}"
        case WorkerPhase.ENDED:
            return f"the master: all trainers of {world} have exited"
        case WorkerPhase.PARKED:
            return f"the assignment of {world}"
        case _:
            return _free(state, world)


def _behind(state: WorkerState) -> int:
    return sum(not trainer.clear_of(state.fence) for trainer in state.trainers)


def _free(state: WorkerState, world: str) -> str:
    if any(trainer.newborn and trainer.attached is None for trainer in state.trainers):
        return f"{len(state.trainers)} invited trainers to warm up"
    waiting = f" for {len(state.trainers)} warm trainers" if state.trainers else ""
    return f"an assignment{waiting}: no rank in {world}" if state.generation else f"an assignment{waiting}"
