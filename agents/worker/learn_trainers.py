"""Learning about trainers: forked, attached, heard, ended."""

from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from agents.worker.events import (
    CheckpointReported,
    StepCompleted,
    TrainerAttached,
    TrainerDetached,
    TrainerSaid,
    TrainersSeen,
    TrainersStopped,
)
from agents.worker.live import is_parking
from agents.worker.state import WorkerState
from agents.worker.trainer import Birth, Trainer
from messages.ids import NO_GENERATION
from messages.workers import Fallen, TrainerExit, TrainerStatus, WrittenCheckpoint
from runtime.backoff import pause_after


def forked(state: WorkerState, birth: Birth, pid: int = 0) -> WorkerState:
    """Learns a fork. An exit may arrive before the fork that it proves."""
    trainer = state.trainer(birth)
    if trainer is None or trainer.pid is not None:
        return state
    state = _replaced(state, replace(trainer, pid=pid))
    if trainer.invited:
        return state
    return replace(state, outcomes=replace(state.outcomes, forked=state.outcomes.forked | {trainer.rank}))


def ended(state: WorkerState, exits: Iterable[tuple[Birth, TrainerExit]], at_s: float) -> WorkerState:
    for birth, sent in exits:
        trainer = state.trainer(birth)
        if trainer is None:
            continue
        how = _as_of(sent, state, trainer)
        lives = state.fence == state.generation or state.planned
        state = replace(state, trainers=tuple(other for other in state.trainers if other.birth != birth))
        if state.stop is not None:
            continue
        if lives and how.rank in state.ranks:
            state = replace(state, outcomes=replace(state.outcomes, exits=(*state.outcomes.exits, how)))
        else:
            state = _fell(state, trainer, how)
            outcomes = replace(state.outcomes, astray=(*state.outcomes.astray, how))
            state = back_off(replace(state, outcomes=outcomes), at_s)
    return state


def _fell(state: WorkerState, trainer: Trainer, how: TrainerExit) -> WorkerState:
    """Learns that a live trainer ended by itself: a halt of its world ends no live trainer."""
    if not trainer.is_live or trainer.newborn or trainer.finished or not (how.clean or how.by_itself):
        return state
    kept = tuple(each for each in state.outcomes.fallen if each.generation == state.fence)
    fallen = (*kept, Fallen(state.fence, trainer.local_rank, how))
    return replace(state, outcomes=replace(state.outcomes, fallen=fallen))


def stopped(state: WorkerState, event: TrainersStopped) -> WorkerState:
    if state.stop is None or any(trainer.generation > event.generation for trainer in state.trainers):
        return state
    return replace(state, trainers=(), stop=None)


def attached(state: WorkerState, event: TrainerAttached) -> WorkerState:
    trainer = state.trainer((event.generation, event.rank))
    if trainer is None:
        return state
    fresh = TrainerStatus(local_rank=trainer.local_rank, rank=trainer.rank)
    return _replaced(state, replace(trainer, attached=fresh, detached_at_s=None, sent=None))


def detached(state: WorkerState, event: TrainerDetached) -> WorkerState:
    trainer = state.trainer((event.generation, event.rank))
    if trainer is None or trainer.attached is None:
        return state
    return _replaced(state, replace(trainer, attached=None, detached_at_s=event.at_s, sent=None))


def said(state: WorkerState, event: TrainerSaid) -> WorkerState:
    trainer = state.trainer((event.generation, event.rank))
    if trainer is None or trainer.attached is None:
        return state
    seen_alive = trainer.attached.parking
    parking = seen_alive if seen_alive > event.status.parked else NO_GENERATION
    # A trainer that sends a status runs, even in another container, where the kernel does not show its process.
    status = structs.replace(
        event.status, local_rank=trainer.local_rank, parking=parking, located=state.observation.locate
    )
    above = max(trainer.above, status.parked, status.generation)
    finished = trainer.finished or status.finished
    state = _replaced(state, replace(trainer, attached=status, above=above, finished=finished))
    return replace(state, invitation=replace(state.invitation, losses=0)) if status.active else state


def seen(state: WorkerState, event: TrainersSeen) -> WorkerState:
    parking = is_parking(state)
    for trainer in state.trainers:
        status, runs = trainer.attached, trainer.birth in event.running
        if status is None:
            continue
        if parking:
            vouched = runs and not trainer.clear_of(state.fence)
            status = structs.replace(status, parking=state.fence if vouched else NO_GENERATION)
        if runs and not state.observation.is_located:
            status = structs.replace(status, located=state.observation.locate)
        state = _replaced(state, replace(trainer, attached=status))
    seen_at_s = event.at_s if parking else state.observation.seen_at_s
    return replace(state, observation=replace(state.observation, seen_at_s=seen_at_s, is_located=True))


def step(state: WorkerState, event: StepCompleted) -> WorkerState:
    if event.generation != state.generation or event.rank not in state.ranks or state.stop is not None:
        return state
    newest = event.step if state.progress.step is None else max(state.progress.step, event.step)
    return replace(state, progress=replace(state.progress, step=newest))


def checkpoint(state: WorkerState, event: CheckpointReported) -> WorkerState:
    """Learns a checkpoint of a script without the SDK. It counts in its own world only, but it becomes the newest
    checkpoint even after that, unless the SDK reports checkpoints with their steps."""
    if state.progress.checkpoint is None or state.progress.checkpoint.step is None:
        state = replace(state, progress=replace(state.progress, checkpoint=WrittenCheckpoint(at=event.at)))
    if event.generation != state.generation or not state.ranks or state.stop is not None:
        return state
    return replace(state, progress=replace(state.progress, checkpoints=state.progress.checkpoints + 1))


def _as_of(sent: TrainerExit, state: WorkerState, trainer: Trainer) -> TrainerExit:
    """Returns the exit with the trainer's current rank. The host knows only the rank it was forked with."""
    early = sent.clean and trainer.is_live and not trainer.newborn and not trainer.finished
    return structs.replace(sent, rank=state.current_rank(trainer), early=early)


def back_off(state: WorkerState, at_s: float) -> WorkerState:
    """Delays the next fork of invited trainers. Several that end together count as one loss."""
    if at_s < state.invitation.due_s:
        return state
    rules = state.rules
    pause_s = pause_after(state.invitation.losses + 1, rules.invite_backoff_s, rules.invite_backoff_max_s)
    losses = min(state.invitation.losses + 1, 16)
    return replace(state, invitation=replace(state.invitation, due_s=at_s + pause_s, losses=losses))


def _replaced(state: WorkerState, trainer: Trainer) -> WorkerState:
    trainers = tuple(trainer if other.birth == trainer.birth else other for other in state.trainers)
    return replace(state, trainers=trainers)
