"""What must hold after every decision of a job core."""

from collections.abc import Iterable

from controlplane.job.effects import JobEffect, Publish
from controlplane.job.ranks import ranks_of
from controlplane.job.state import Job, Phase
from messages.worlds import Assignment, Halt


def check(before: Job, after: Job, effects: Iterable[JobEffect]) -> list[str]:
    """What is broken, in sentences; empty if nothing is."""
    broken = [*_ranks(after), *_fences(before, after), *_ends(before, after)]
    for effect in effects:
        if isinstance(effect, Publish):
            broken += _published(after, effect)
    return broken


def _ranks(job: Job) -> list[str]:
    world = job.record.assignment
    if world is None:
        return []
    held = [rank for member in world.members for rank in ranks_of(member)]
    broken = []
    if sorted(held) != list(range(world.world_size)):
        broken.append(f"generation {world.generation} holds ranks {sorted(held)}, not 0…{world.world_size - 1}")
    if world.world_size % job.spec.replica:
        broken.append(f"a world of {world.world_size} cuts a replica of {job.spec.replica}")
    if len({member.worker for member in world.members}) != len(world.members):
        broken.append(f"a worker is twice in generation {world.generation}")
    return broken


def _fences(before: Job, after: Job) -> list[str]:
    broken = []
    if after.record.generation < before.record.generation:
        broken.append(f"generation went back from {before.record.generation} to {after.record.generation}")
    old, new = before.record.assignment, after.record.assignment
    if old is not None and new is not None and old != new and new.generation <= old.generation:
        broken.append(f"generation {new.generation} was given to a second world")
    if after.workers.keys() & after.gone.keys():
        broken.append(f"dead and alive at once: {sorted(after.workers.keys() & after.gone.keys())}")
    dead_members = {member.worker for member in new.members} & before.gone.keys() if new is not None else set()
    if new != old and dead_members:
        broken.append(f"dead workers were given ranks: {sorted(dead_members)}")
    if after.record.losses > before.record.losses and after.record.failures > before.record.failures:
        broken.append("a loss used up the failure budget")
    return broken


def _ends(before: Job, after: Job) -> list[str]:
    if before.record.phase.ended and after.record.phase is not before.record.phase:
        return [f"a job that had {before.record.phase} became {after.record.phase}"]
    if after.record.phase is Phase.RUNNING and after.record.assignment is None:
        return ["a job runs without a world"]
    return []


def _published(job: Job, effect: Publish) -> list[str]:
    message = effect.message
    if job.saved != job.record:
        return [f"{type(message).__name__} was published before its record was saved"]
    if isinstance(message, Assignment | Halt) and message.generation != job.record.generation:
        return [f"{type(message).__name__} of generation {message.generation}, not {job.record.generation}"]
    return []
