"""What must hold after every decision of a job core."""

from collections.abc import Iterable

from controlplane.job.effects import JobEffect, Publish
from controlplane.job.ranks import ranks_of
from controlplane.job.state import Job
from controlplane.job.workers import Workers
from messages.ids import Rank
from messages.records import Phase
from messages.worlds import Assignment, Entry, Halt, Invite, Locate


def check(before: Job, after: Job, effects: Iterable[JobEffect]) -> list[str]:
    """Describes each broken invariant; empty if none is."""
    record = after.record
    broken = [*_indexes(after.workers), *_ranks(after, record.assignment), *_ranks(after, record.prepared)]
    broken += [*_fences(before, after), *_prepared(before, after), *_repaired(before, after), *_ends(before, after)]
    for effect in effects:
        if isinstance(effect, Publish):
            broken += _published(after, effect)
    return broken


def _indexes(workers: Workers) -> list[str]:
    """Checks that the indexes are those of a newly built table."""
    fresh = Workers(workers.values())
    names = ("live", "silent", "noticed", "exited", "finished", "overdue")
    return [f"index {name} is wrong" for name in names if getattr(workers, name) != getattr(fresh, name)]


def _ranks(job: Job, world: Assignment | None) -> list[str]:
    if world is None:
        return []
    held = [rank for member in world.members for rank in ranks_of(member)]
    broken = []
    if sorted(held) != list(range(world.world_size)):
        broken.append(f"generation {world.generation} holds ranks {sorted(held)}, not 0…{world.world_size - 1}")
    if world.world_size % job.spec.replica:
        broken.append(f"a world of {world.world_size} cuts a replica of {job.spec.replica}")
    allowed = job.spec.workers.allowed
    if allowed and world.live is None and len(world.members) not in allowed:
        broken.append(f"a world of {len(world.members)} workers, but only {allowed} are allowed")
    if len({member.worker for member in world.members}) != len(world.members):
        broken.append(f"a worker is twice in generation {world.generation}")
    live = world.live
    if live is not None and len(live.previous) != world.world_size:
        broken.append(f"generation {world.generation} has previous ranks of {len(live.previous)} ranks only")
    return broken


def _fences(before: Job, after: Job) -> list[str]:
    broken = []
    if after.record.generation < before.record.generation:
        broken.append(f"generation went back from {before.record.generation} to {after.record.generation}")
    old, new = before.record.assignment, after.record.assignment
    if old is not None and new is not None and old != new and new.generation <= old.generation:
        broken.append(f"generation {new.generation} was used for a second world")
    if after.workers.keys() & after.gone.keys():
        broken.append(f"workers are both tombstoned and alive: {sorted(after.workers.keys() & after.gone.keys())}")
    dead_members = {member.worker for member in new.members} & before.gone.keys() if new is not None else set()
    if new not in (old, before.record.prepared) and dead_members:
        broken.append(f"dead workers were given ranks: {sorted(dead_members)}")
    stalled = (
        after.failures.counted is not None and after.failures.counted.exit.stalled
    )  # counts even if others were lost meanwhile
    if after.record.losses > before.record.losses and after.record.failures > before.record.failures and not stalled:
        broken.append("a loss used up the failure budget")
    return broken


def _prepared(before: Job, after: Job) -> list[str]:
    broken = []
    old, new = before.record.prepared, after.record.prepared
    world = after.record.assignment
    if old is not None and world is not None and world.generation == old.generation and world != old:
        broken.append(f"generation {old.generation} was prepared for another world")
    if new is None:
        return broken
    if after.record.phase not in (Phase.RUNNING, Phase.RESHAPING):
        broken.append(f"a job in phase {after.record.phase} has a prepared world")
    if new == old:
        return broken
    if new.generation <= max(before.record.generation, old.generation if old is not None else 0):
        broken.append(f"generation {new.generation} was prepared, but is already used")
    if old is not None and world != old:
        broken.append(f"generation {new.generation} was prepared before {old.generation} ended")
    dead = {member.worker for member in new.members} & after.gone.keys()
    if dead:
        broken.append(f"dead workers were given ranks: {sorted(dead)}")
    return broken


def _repaired(before: Job, after: Job) -> list[str]:
    """Checks that each rank that continues has the state and is at most one all-reduce behind."""
    world = after.record.assignment
    if world is None or world == before.record.assignment or world.live is None or world.live.entry is not Entry.REPAIR:
        return []
    broken = []
    trainers = {
        rank: trainer
        for member in world.members
        for rank, local in zip(ranks_of(member), range(member.ranks), strict=True)
        for trainer in after.workers[member.worker].trainers
        if trainer.local_rank == local
    }
    live = world.live
    for rank, previous in enumerate(live.previous):
        trainer = trainers.get(Rank(rank))
        if trainer is None:
            broken.append(f"rank {rank} of generation {world.generation} has no trainer")
        elif previous >= 0 and not (trainer.active and live.resume - 1 <= trainer.done <= live.resume):
            broken.append(f"rank {rank} continues from step {live.resume} without its state")
        elif previous >= 0 and (trainer.done < live.resume) != (rank in live.laggards):
            broken.append(f"rank {rank} completed {trainer.done} steps, but the world has another number")
    source = trainers.get(live.source)
    if source is None or source.done != live.resume or live.previous[live.source] < 0:
        broken.append(f"rank {live.source} is the source of an all-reduce that it does not have")
    return broken


def _ends(before: Job, after: Job) -> list[str]:
    if before.record.phase.ended and after.record.phase is not before.record.phase:
        return [f"an ended job changed from {before.record.phase} to {after.record.phase}"]
    if after.record.phase is Phase.RUNNING and after.record.assignment is None:
        return ["a job runs without a world"]
    if after.record.phase is Phase.FORMING and after.record.paused is not None:
        return ["a paused job forms a world"]
    return []


def _published(job: Job, effect: Publish) -> list[str]:
    """Checks a published message. `Halt` and `Locate` assign nothing, so they need no saved record."""
    message = effect.message
    if job.storage.saved != job.record and not isinstance(message, Halt | Locate):
        return [f"{type(message).__name__} was published before its record was saved"]
    if isinstance(message, Assignment) and message not in (job.record.assignment, job.record.prepared):
        return [f"an undecided world of generation {message.generation} was published"]
    if isinstance(message, Invite) and job.record.paused is not None:
        return ["a paused job invites workers"]
    if isinstance(message, Halt) and message.generation != job.record.generation:
        return [f"Halt of generation {message.generation}, not {job.record.generation}"]
    return []
