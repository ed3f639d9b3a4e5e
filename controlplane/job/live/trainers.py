"""Questions about live trainers: which have the state, which can join.

The job learns from its workers whether it has live trainers; it is not configured.
"""

from msgspec.structs import replace

from controlplane.job import draining
from controlplane.job.queries import (
    can_train,
    current_members,
    has_finished,
    member_of,
    member_of_prepared,
    members,
    remembered,
)
from controlplane.job.ranks import arrange, choose
from controlplane.job.state import Barred, Job
from controlplane.job.texts import rejected
from controlplane.job.workers import Worker
from messages.ids import NO_GENERATION, Generation, WorkerId
from messages.records import Phase
from messages.workers import TrainerStatus
from messages.worlds import Assignment, Member


def top(job: Job) -> Generation:
    """The highest generation in use, including one that an earlier master did not save.

    A trainer that left a broken world by itself has parked above that world, without using the generation."""
    known = [job.record.generation]
    if job.record.prepared is not None:
        known.append(job.record.prepared.generation)
    known += [worker.generation for worker in job.workers.values()]
    if job.workers.live:
        trainers = (trainer for worker in job.workers.values() for trainer in worker.trainers)
        known += [max(trainer.generation, _ordered_to_park(trainer)) for trainer in trainers]
    return max(known)


def is_above(worker: Worker, generation: Generation) -> bool:
    """True if the worker knows of a later generation."""
    return worker.generation > generation or any(_ordered_to_park(trainer) > generation for trainer in worker.trainers)


def lives_on(job: Job) -> bool:
    """True if the current or the prepared world has live trainers."""
    return bool(job.workers.live) and any(worker.trainers for worker in concerned(job))


@remembered
def concerned(job: Job) -> list[Worker]:
    """Workers of the current and the prepared world that are there."""
    world, prepared = job.record.assignment, job.record.prepared
    named = {**(world.by_worker if world is not None else {}), **(prepared.by_worker if prepared is not None else {})}
    return [job.workers[name] for name in named if name in job.workers]


@remembered
def is_live(job: Job) -> bool:
    """True if all trainers of the members that are there are attached and train in the running world."""
    if not job.workers.live:
        return False
    busy = [(member, worker) for member, worker in current_members(job) if not has_finished(job, member)]
    return bool(busy) and all(_trains(member, worker, job.record.generation) for member, worker in busy)


def has_entered(world: Assignment, member: Member, worker: Worker) -> bool:
    """True if the worker's trainers are in that world, or ended in it."""
    entered = {trainer.local_rank for trainer in worker.trainers if trainer.generation >= world.generation}
    if worker.exits:
        entered |= _ended(world, member, worker)
    return entered.issuperset(range(member.ranks))


def is_over(job: Job) -> bool:
    """True if all ranks completed all steps and only the scripts have to exit."""
    ended = bool(job.round.clean) and job.round.quit is None and job.workers.live > 0
    return ended or bool(job.workers.finished) or _some_ended(job)


def detached(world: Assignment, member: Member, worker: Worker) -> bool:
    """True if a trainer is missing and its exit is unknown."""
    reported = {trainer.local_rank for trainer in worker.trainers}
    if worker.exits:
        reported |= _ended(world, member, worker)
    return not reported.issuperset(range(member.ranks))


@remembered
def survivors(job: Job) -> list[Worker]:
    """Workers of the last world whose trainers have its state, each with those trainers and as many slots.

    A worker that lost one of several trainers is left out, unless no other has the state."""
    if not job.workers.live:
        return []
    able = [(member, _in_last_world(member, worker)) for member, worker in current_members(job) if can_train(worker)]
    able = [(member, worker) for member, worker in able if _has_state(worker)]
    complete = [worker for member, worker in able if worker.slots == member.ranks]
    return complete or [worker for _, worker in able if worker.slots % job.spec.replica == 0]


def level(workers: list[Worker]) -> list[Worker]:
    """Leaves out workers that report to be more than one all-reduce behind, which is impossible.

    They rejoin without state."""
    newest = max((trainer.done for worker in workers for trainer in in_world(worker)), default=0)
    return [worker for worker in workers if all(trainer.done >= newest - 1 for trainer in in_world(worker))]


@remembered
def joining_workers(job: Job) -> list[Worker]:
    """Workers outside the world whose trainers are warm, wait to join, and do not rest."""
    running = job.record.generation
    return [
        worker
        for worker in job.workers.values()
        if worker.trainers
        and can_train(worker)
        and _all_attached(worker, worker.slots)
        and not any(t.finished or t.resting for t in worker.trainers)
        and not any(t.generation == running and t.parked <= running for t in worker.trainers)
    ]


@remembered
def live_candidates(job: Job) -> list[Worker]:
    """Workers that continue from the survivors' state; empty if no state survived.

    Joining workers are added only if the survivors are too few."""
    able = draining.usable(job, with_state(job))
    kept = {worker.worker for worker in able}
    alone = whole(choose(able, job.record.wanted, kept, job.spec.workers), job.spec.replica)
    if not alone or draining.can_continue(job, alone):
        return alone
    others = [worker for worker in draining.usable(job, joining_workers(job)) if worker.worker not in kept]
    together = whole(choose([*able, *others], job.record.wanted, kept, job.spec.workers), job.spec.replica)
    return together if _keeps_state(together, kept, job.spec.replica) else alone


def why_rejected(job: Job) -> str | None:
    """Why a joining worker was rejected."""
    for worker in job.workers.values() if job.workers.live else ():
        for trainer in worker.trainers:
            if trainer.resting:
                return rejected(worker.worker, trainer.waits)
    return None


def never_parked(job: Job) -> list[WorkerId]:
    """Workers of the last world that did not park: they may still train since they last reported their state."""
    if not job.workers.live:
        return []
    return [
        worker.worker
        for _, worker in current_members(job)
        if can_train(worker)
        and any(trainer.parked <= trainer.generation and not trainer.finished for trainer in in_world(worker))
    ]


@remembered
def with_state(job: Job) -> list[Worker]:
    return level(survivors(job))


def whole(workers: list[Worker], replica: int) -> list[Worker]:
    """Leaves out the last workers until the others make whole replicas: members come first, and so keep their place.

    Returns all of them if no worker would be left; then some hold fewer ranks than they have slots."""
    slots = sum(worker.slots for worker in workers)
    for count in range(len(workers), 0, -1):
        if slots % replica == 0:
            return workers[:count]
        slots -= workers[count - 1].slots
    return workers


def finishing(job: Job) -> list[WorkerId]:
    """Workers whose trainers have done all steps and have not exited yet."""
    done = [worker for name, worker in job.workers.items() if name in job.workers.finished]
    return [worker.worker for worker in done if in_world(worker) and all(each.finished for each in in_world(worker))]


def to_invite(job: Job, now_s: float) -> list[WorkerId]:
    """Workers that would be in a larger world if their trainers were warm. Members already have trainers."""
    runs = job.record.phase is Phase.RUNNING
    held = {member.worker for member in members(job)} if runs else {worker.worker for worker in survivors(job)}
    able = draining.usable(job, filter(can_train, job.workers.values()))
    wanted = choose(able, job.record.wanted, held, job.spec.workers)
    return [
        worker.worker
        for worker in wanted
        if worker.worker not in held
        and member_of_prepared(job, worker.worker) is None
        and len(worker.trainers) < worker.slots
        and worker.seq >= 0
        and not _is_barred(job.failures.barred.get(worker.worker), now_s)
    ]


def terms(job: Job) -> str:
    """Terms that the current trainers reported."""
    reported = (trainer.terms for _, worker in current_members(job) for trainer in in_world(worker))
    return next(filter(None, reported), "")


def in_world(worker: Worker) -> tuple[TrainerStatus, ...]:
    """Its trainers that are, or were, in a world."""
    return tuple(trainer for trainer in worker.trainers if trainer.generation > 0)


def rank_before(job: Job, worker: WorkerId, local: int) -> int:
    """Rank in the running world; −1 for a trainer that is not in it."""
    member = member_of(job, worker)
    return member.first_rank + local if member is not None and local < member.ranks else -1


def _some_ended(job: Job) -> bool:
    """True if a rank of a live world exited with 0: no rank does before all have the last step."""
    worlds = [world for world in (job.record.assignment, job.record.prepared) if world is not None]
    live = {world.generation for world in worlds if world.live is not None}
    seated = [job.workers[name] for name in job.workers.exited if any(name in world.by_worker for world in worlds)]
    reported = (exit_ for worker in seated if worker.generation in live for exit_ in worker.exits)
    return any(exit_.clean and not exit_.early for exit_ in reported)


def _ended(world: Assignment, member: Member, worker: Worker) -> set[int]:
    if worker.generation != world.generation:
        return set()
    return {exit_.rank - member.first_rank for exit_ in worker.exits}


def _keeps_state(workers: list[Worker], kept: set[WorkerId], replica: int) -> bool:
    return any(member.worker in kept for member in arrange(workers, replica).members)


def _ordered_to_park(trainer: TrainerStatus) -> Generation:
    return NO_GENERATION if 0 < trainer.parked <= trainer.broken + 1 else trainer.parked


def _trains(member: Member, worker: Worker, generation: Generation) -> bool:
    mine = 0
    for trainer in worker.trainers:
        if trainer.local_rank < member.ranks:
            if trainer.generation != generation:
                return False
            mine += 1
    return mine == member.ranks


def _in_last_world(member: Member, worker: Worker) -> Worker:
    """The worker without trainers that had no rank in the last world."""
    mine = [each for each in worker.trainers if each.generation > 0 and each.local_rank < member.ranks]
    if len(mine) == len(worker.trainers) == worker.slots:
        return worker
    return replace(worker, trainers=tuple(mine), slots=len(mine))


def _has_state(worker: Worker) -> bool:
    """True if all its trainers have the state, in order, and not all of them have done the last step."""
    continues = False
    for local_rank, trainer in enumerate(worker.trainers):
        if trainer.local_rank != local_rank or not trainer.active:
            return False
        continues = continues or not trainer.finished
    return continues


def _all_attached(worker: Worker, ranks: int) -> bool:
    return sorted(trainer.local_rank for trainer in worker.trainers) == list(range(ranks))


def _is_barred(barred: Barred | None, now_s: float) -> bool:
    return barred is not None and now_s < barred.until_s
