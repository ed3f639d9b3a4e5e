"""Reasons why the current world must change."""

from controlplane.job.draining import can_continue, is_draining
from controlplane.job.live.next_world import abandon_at_s, hurry_at_s
from controlplane.job.live.stalls import waits_in_vain
from controlplane.job.live.trainers import concerned, detached, is_above, is_live, is_over
from controlplane.job.queries import (
    chosen,
    has_finished,
    member_of,
    member_of_prepared,
    members,
)
from controlplane.job.state import Job
from controlplane.job.texts import (
    describe_exit,
    lost,
    lost_peers,
    must_leave,
    must_leave_at_once,
    must_leave_first,
    next_world_late,
)
from controlplane.job.workers import Worker
from messages.ids import Generation, WorkerId
from messages.records import Phase
from messages.worlds import Assignment, Member

LONG_NOTICE_S = 60.0
"""Seconds left of a notice above which plain scripts that need the worker train until another joins."""


def must_change(job: Job, now_s: float) -> str | None:
    if job.record.stop_why is not None or job.record.paused is not None:
        return job.record.stop_why or job.record.paused
    why = _lost(job, _named(job)) or _must_leave(job, now_s) or _abandons_all(job)
    if why is not None:
        return why
    if job.round.failure is not None:
        return describe_exit(job.round.failure.exit)
    if job.round.store_lost and job.record.phase is Phase.FORMING:
        return "the store was lost before the ranks had met"
    return _first_sign(job) or _took_too_long(job, now_s)


def changes_in_place(job: Job) -> bool:
    """True if its trainers can switch to a next world, so that a notice does not end the current one."""
    world = job.record.assignment
    if job.record.phase is Phase.FORMING:
        return _is_live(world)
    return job.record.prepared is not None or is_live(job)


def _named(job: Job) -> list[Member]:
    """Needed members: those of the current world and, until the last step is done, of the prepared one."""
    prepared = job.record.prepared
    if prepared is None or is_over(job):
        return list(members(job))
    return [*members(job), *(each for each in prepared.members if member_of(job, each.worker) is None)]


def _lost(job: Job, named: list[Member]) -> str | None:
    for member in named:
        if member.worker not in job.workers and not (member_of(job, member.worker) and has_finished(job, member)):
            return lost(member.worker, job.gone.get(member.worker, "gone"))
    return None


def _must_leave(job: Job, now_s: float) -> str | None:
    noticed = {
        member.worker: why
        for member in _noticed(job)
        if (why := job.workers[member.worker].noticed) is not None and not has_finished(job, member)
    }
    if not noticed:
        return None
    if not changes_in_place(job):
        going = [name for name in noticed if not _can_wait(job, name, now_s)]
        return must_leave(going[0], noticed[going[0]]) if going else None
    for name, at_s in hurry_at_s(job).items():
        if now_s >= at_s and not is_over(job):
            return must_leave_at_once(name, noticed[name])
    return None


def _noticed(job: Job) -> list[Member]:
    """Members with a notice, by rank."""
    named = (member_of(job, name) for name in job.workers.noticed)
    return sorted(filter(None, named), key=lambda member: member.first_rank)


def _can_wait(job: Job, worker: WorkerId, now_s: float) -> bool:
    """True if the notice is long and, without the worker, too few would be left to train."""
    deadline_s = job.workers[worker].deadline_s
    return deadline_s is not None and deadline_s - now_s > LONG_NOTICE_S and not can_continue(job, chosen(job))


def _abandons_all(job: Job) -> str | None:
    """Why draining workers must leave first: no replacement can come before, and too few others are left."""
    if not job.supply.at_once or is_over(job):
        return None
    here = [worker for member in members(job) if (worker := job.workers.get(member.worker)) is not None]
    going = [worker.worker for worker in here if is_draining(job, worker)]
    if not going or can_continue(job, [worker for worker in here if not is_draining(job, worker)]):
        return None
    return must_leave_first(going)


def _first_sign(job: Job) -> str | None:
    """Signs of a broken world that trainers report before a worker is known to be lost."""
    record, over = job.record, is_over(job)
    newest = record.prepared.generation if record.prepared is not None else record.generation
    is_plain = not job.workers.live and record.prepared is None and not _is_live(record.assignment)
    for worker in concerned(job):
        if worker.seq < 0 or (is_plain and worker.generation <= newest):
            continue
        why = _sign_of(job, worker, newest, over=over)
        if why is not None:
            return why
    return waits_in_vain(job)


def _is_live(world: Assignment | None) -> bool:
    return world is not None and world.live is not None


def _sign_of(job: Job, worker: Worker, newest: Generation, *, over: bool) -> str | None:
    record = job.record
    for trainer in worker.trainers:
        if trainer.broken >= max(record.generation, trainer.generation) and trainer.broken > 0:
            return lost_peers(trainer.rank, worker.worker)
    if is_above(worker, newest):
        return f"worker {worker.worker} was halted by an earlier master whose reason is unknown"
    return None if over else _sign_of_absence(job, worker, newest)


def _sign_of_absence(job: Job, worker: Worker, newest: Generation) -> str | None:
    world, prepared = job.record.assignment, job.record.prepared
    next_member, member = member_of_prepared(job, worker.worker), member_of(job, worker.worker)
    if prepared is not None and next_member is not None:
        if any(trainer.parked >= newest > trainer.generation for trainer in worker.trainers):
            return f"worker {worker.worker} was halted before it switched"
        is_absent = detached(prepared, next_member, worker)
    elif world is not None and world.live is not None and member is not None:
        is_absent = detached(world, member, worker)
    else:
        is_absent = False
    return f"worker {worker.worker} has lost a trainer" if is_absent else None


def _took_too_long(job: Job, now_s: float) -> str | None:
    at_s = abandon_at_s(job)
    if at_s is None or now_s < at_s:
        return None
    return next_world_late(job.spec.timeouts.ready_s)
