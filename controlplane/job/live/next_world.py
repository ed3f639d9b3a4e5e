"""Planned changes: the next world is prepared while the current one trains, so no step is lost."""

from msgspec.structs import replace

from controlplane.job.draining import can_continue, usable
from controlplane.job.live.trainers import is_over, joining_workers, rank_before, whole
from controlplane.job.membership import why_larger, why_without_some
from controlplane.job.queries import can_train, has_finished, may_differ, member_of, members
from controlplane.job.ranks import Arrangement, arrange, choose
from controlplane.job.reload import next_to_reload, replaced
from controlplane.job.state import Job
from controlplane.job.texts import must_leave, too_few_left, waits_to
from controlplane.job.workers import Worker
from messages.ids import WorkerId
from messages.worlds import Entry, LiveWorld, Member

HANDOVER_LEAST_S = 0.5
"""Seconds left of a notice below which a hand-over is neither begun nor waited for."""


def why_plan(job: Job) -> str | None:
    """Why a next world is needed; None also after the last step."""
    if job.round.clean or is_over(job):
        return None
    for member in members(job) if job.workers.noticed else ():
        if member.worker in job.workers.noticed:
            return must_leave(member.worker, job.workers[member.worker].noticed or "")
    if not may_differ(job):
        return None
    if (outdated := next_to_reload(job)) is not None:
        return replaced(outdated)
    candidates = _candidates(job)
    return why_without_some(job, candidates) or why_larger(job, candidates)


def plan(job: Job) -> Arrangement | str:
    """The next world, or why it must wait."""
    behind = [
        member.worker
        for member in members(job)
        if any(not t.active and t.local_rank < member.ranks for t in job.workers[member.worker].trainers)
    ]
    if behind:
        return waits_to("catch up", behind)
    candidates = _candidates(job)
    if not can_continue(job, candidates):
        return too_few_left(len(candidates), job.spec.workers.least)
    return arrange(candidates, job.spec.replica)


def planned_world(job: Job, next_members: tuple[Member, ...]) -> LiveWorld:
    stay = {member.worker for member in next_members}
    return LiveWorld(
        entry=Entry.PLANNED,
        previous=tuple(
            rank_before(job, member.worker, local) for member in next_members for local in range(member.ranks)
        ),
        leaving_workers=tuple(member.worker for member in members(job) if member.worker not in stay),
    )


def hurry_at_s(job: Job) -> dict[WorkerId, float]:
    """When the notices of members leave no more time for a hand-over."""
    going = [member for name in job.workers.noticed if (member := member_of(job, name)) is not None]
    return {
        member.worker: deadline_s - HANDOVER_LEAST_S
        for member in sorted(going, key=lambda member: member.first_rank)
        if (deadline_s := job.workers[member.worker].deadline_s) is not None and not has_finished(job, member)
    }


def abandon_at_s(job: Job) -> float | None:
    """When to abandon the prepared world because it takes too long."""
    if job.record.prepared is None or job.round.prepared_s is None:
        return None
    return job.round.prepared_s + job.spec.timeouts.ready_s


def _candidates(job: Job) -> list[Worker]:
    current = {member.worker for member in members(job)}
    here = [job.workers[name] for name in current - {next_to_reload(job)} if name in job.workers]
    stay = [replace(worker, slots=len(worker.trainers)) for worker in here if can_train(worker)]
    others = [worker for worker in joining_workers(job) if worker.worker not in current | {*job.record.outdated}]
    able = choose(usable(job, [*stay, *others]), job.record.wanted, current, job.spec.workers)
    chosen = whole(able, job.spec.replica)
    if any(worker.worker in current for worker in chosen):
        return chosen
    return _beside(chosen, job, current)


def _beside(joining_workers: list[Worker], job: Job, current: set[WorkerId]) -> list[Worker]:
    """A world of all members and the joining workers, for when all members with the state must leave.

    They stay until a joining worker has the state too."""
    going = [job.workers[name] for name in sorted(current) if name in job.workers]
    going = [replace(worker, slots=len(worker.trainers)) for worker in going if worker.trainers]
    together = whole([*going, *joining_workers], job.spec.replica)
    return together if joining_workers and len(together) > len(going) else []
