"""Workers on nodes that the allocator wants to remove: they leave as at a scale-down, if enough remain to train.

If no replacement can come before they are gone, they leave at once and the job waits.
"""

from collections.abc import Iterable

from controlplane.job.ranks import whole_ranks
from controlplane.job.state import Job
from controlplane.job.workers import Worker


def is_draining(job: Job, worker: Worker) -> bool:
    return bool(worker.node) and worker.node in job.supply.leaving.get(worker.cluster, ())


def usable(job: Job, workers: Iterable[Worker]) -> list[Worker]:
    """Workers for a next world: those that are not draining, and only as many draining ones as it needs."""
    able = list(workers)
    if not job.supply.leaving:
        return able
    staying = [worker for worker in able if not is_draining(job, worker)]
    going = sorted((worker for worker in able if is_draining(job, worker)), key=lambda worker: worker.worker)
    while going and not job.supply.at_once and not can_continue(job, staying):
        staying.append(going.pop(0))
    return staying


def can_continue(job: Job, workers: list[Worker]) -> bool:
    return len(workers) >= job.spec.workers.least and whole_ranks(workers, job.spec.replica) > 0
