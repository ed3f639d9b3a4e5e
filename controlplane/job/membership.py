"""Why the world should have other members: fewer are wanted, nodes are wanted back, or a larger one can be made.

For scripts such a change is a restart; trainers that live on change in place.
"""

from controlplane.job.draining import is_draining
from controlplane.job.queries import members, world_size
from controlplane.job.ranks import whole_ranks
from controlplane.job.sentences import count, name_workers
from controlplane.job.state import Job
from controlplane.job.workers import Worker


def why_without_some(job: Job, candidates: list[Worker]) -> str | None:
    if len(members(job)) > job.record.wanted:
        return f"scaled to {count(job.record.wanted, 'worker')}"
    return _why_drained(job, candidates)


def why_larger(job: Job, candidates: list[Worker]) -> str | None:
    if whole_ranks(candidates, job.spec.replica) <= world_size(job):
        return None
    present = {member.worker for member in members(job)}
    joined = [worker.worker for worker in candidates if worker.worker not in present]
    return f"{name_workers(joined)} joined" if joined else "there is room for more ranks"


def _why_drained(job: Job, candidates: list[Worker]) -> str | None:
    """Members whose nodes are wanted back, if the candidates can do without them."""
    able = {worker.worker for worker in candidates}
    going = [
        member.worker
        for member in members(job)
        if member.worker in job.workers and is_draining(job, job.workers[member.worker]) and member.worker not in able
    ]
    return f"{name_workers(going)} must go: machines are given up" if going and candidates else None
