"""Workers on nodes that the allocator wants back: let go as at a scale-down, as far as enough are left to train.

Unless nothing can come before all of them are gone: then they go at once, and the job waits for what comes.
"""

from collections.abc import Iterable

from controlplane.job.ranks import whole_ranks
from controlplane.job.state import Job
from controlplane.job.workers import Worker


def is_draining(job: Job, worker: Worker) -> bool:
    return bool(worker.node) and worker.node in job.supply.leaving.get(worker.cluster, ())


def kept(job: Job, workers: Iterable[Worker]) -> list[Worker]:
    """Those of them that a next world may be made of: of the others no more than are needed."""
    able = list(workers)
    if not job.supply.leaving:
        return able
    staying = [worker for worker in able if not is_draining(job, worker)]
    going = sorted((worker for worker in able if is_draining(job, worker)), key=lambda worker: worker.worker)
    while going and not job.supply.at_once and not can_go_on(job, staying):
        staying.append(going.pop(0))
    return staying


def can_go_on(job: Job, workers: list[Worker]) -> bool:
    return len(workers) >= job.spec.workers.least and whole_ranks(workers, job.spec.replica) > 0
