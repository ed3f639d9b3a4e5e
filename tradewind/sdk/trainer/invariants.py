"""Invariants that hold after each event of a trainer."""

from collections.abc import Sequence

from tradewind.sdk.trainer.effects import Report, TrainerEffect
from tradewind.sdk.trainer.shares import merged
from tradewind.sdk.trainer.state import Trainer


def check(before: Trainer, after: Trainer, effects: Sequence[TrainerEffect]) -> list[str]:
    """Returns a message for each broken invariant."""
    return [*_promise(before, after), *_fences(before, after), *_steps(before, after, effects)]


def _promise(before: Trainer, after: Trainer) -> list[str]:
    broken = []
    promised, following = after.plan.promised, after.plan.next
    if promised and not after.is_in_collective:
        broken.append(f"generation {promised} is promised outside an all-reduce")
    if promised and (following is None or following.generation != promised):
        broken.append(f"generation {promised} is promised, but another one is next")
    if before.plan.promised and promised != before.plan.promised and after.is_in_collective:
        broken.append(f"the promise of generation {before.plan.promised} changed inside the all-reduce")
    return broken


def _fences(before: Trainer, after: Trainer) -> list[str]:
    broken = []
    old, new = before.fence, after.fence
    if new.halted < old.halted or new.parked < old.parked or new.broken < old.broken:
        broken.append(f"a fence decreased: {old} to {new}")
    generations = [state.world.generation if state.world is not None else 0 for state in (before, after)]
    if generations[1] < generations[0]:
        broken.append(f"the generation decreased from {generations[0]} to {generations[1]}")
    if generations[1] > generations[0] and generations[1] < new.halted:
        broken.append(f"the trainer entered generation {generations[1]} after a halt for {new.halted}")
    if after.is_in_collective and after.is_parked:
        broken.append(f"the trainer is parked for {new.parked} inside a collective of generation {generations[1]}")
    if not after.is_in_collective and new.parked < new.halted and (after.world is None or after.is_halted):
        broken.append(f"the trainer is in no collective and has not parked for {new.halted}")
    return broken


def _steps(before: Trainer, after: Trainer, effects: Sequence[TrainerEffect]) -> list[str]:
    broken = []
    if before.is_active and after.is_active and not 0 <= after.done - before.done <= 1:
        broken.append(f"an active rank went from step {before.done} to {after.done}")
    if after.held and (after.held != merged(after.held) or after.held[0][0] < 0 or after.held[-1][1] > after.batch):
        broken.append(f"the trainer holds {after.held} of a batch of {after.batch}")
    if after.held and (not after.is_active or after.done >= after.steps):
        broken.append(f"the trainer holds samples of step {after.done}, but has no share in it")
    reported = [effect.status for effect in effects if isinstance(effect, Report)]
    if any((status.done, status.held) != (after.done, after.held) for status in reported):
        broken.append(f"the trainer continues with step {after.done}, {after.held}, but reported {reported}")
    return broken
