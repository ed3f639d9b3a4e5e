"""Reasons for other members: fewer workers are wanted, nodes will be removed, or a larger world is possible.

Such a change restarts scripts without the SDK; live trainers change in place.
"""

from controlplane.job.draining import is_draining
from controlplane.job.queries import members, world_size
from controlplane.job.ranks import whole_ranks
from controlplane.job.state import Job
from controlplane.job.texts import drained, joined, scaled
from controlplane.job.workers import Worker


def why_without_some(job: Job, candidates: list[Worker]) -> str | None:
    if len(members(job)) > job.record.wanted:
        return scaled(job.record.wanted)
    return _why_drained(job, candidates)


def why_larger(job: Job, candidates: list[Worker]) -> str | None:
    if whole_ranks(candidates, job.spec.replica) <= world_size(job):
        return None
    current = {member.worker for member in members(job)}
    new = [worker.worker for worker in candidates if worker.worker not in current]
    return joined(new) if new else "more ranks are possible"


def _why_drained(job: Job, candidates: list[Worker]) -> str | None:
    """Why draining members leave, if candidates remain without them."""
    able = {worker.worker for worker in candidates}
    going = [
        member.worker
        for member in members(job)
        if member.worker in job.workers and is_draining(job, job.workers[member.worker]) and member.worker not in able
    ]
    return drained(going) if going and candidates else None
