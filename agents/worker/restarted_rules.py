"""Rules for scripts without the SDK, whose trainers are ended and forked again for each world."""

from dataclasses import replace

from agents.worker.effects import ForkTrainers, Step, StopTrainers, WorkerEffect
from agents.worker.events import TrainerForked, WorkerEvent
from agents.worker.state import HostPhase, WorkerState
from agents.worker.trainer import a_forked


def end_stray(state: WorkerState, event: WorkerEvent) -> list[WorkerEffect]:
    """Stops a trainer of an old generation that the state no longer contains."""
    if not isinstance(event, TrainerForked) or event.generation >= state.generation:
        return []
    counted = any(trainer.generation <= event.generation for trainer in state.trainers)
    return [] if counted else [StopTrainers(event.generation, 0.0)]


def fork(state: WorkerState, at_s: float) -> Step:
    world = state.world
    untouched = not state.trainers and not state.outcomes.exits and state.fence == state.generation
    if world is None or world.live is not None or not state.ranks or not untouched:
        return state, []
    if state.host.phase is not HostPhase.WARM or state.leaving:
        return state, []
    trainers = tuple(a_forked(state.generation, rank, local_rank) for local_rank, rank in enumerate(state.ranks))
    return replace(state, trainers=trainers), [ForkTrainers(world)]
