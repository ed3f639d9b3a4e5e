"""Workers on nodes that the allocator wants back: let go as at a scale-down, once enough others can train.

Unless nothing can come before they are gone: then they go at once, and the job waits for what comes.
"""

from collections.abc import Iterable

from controlplane.job.ranks import arrange
from controlplane.job.state import Job, Worker


def is_given_up(job: Job, worker: Worker) -> bool:
    return bool(worker.node) and worker.node in job.leaving


def kept(job: Job, workers: Iterable[Worker]) -> list[Worker]:
    """Those of them that a next world may be made of."""
    able = list(workers)
    if not job.leaving:
        return able
    staying = [worker for worker in able if not is_given_up(job, worker)]
    return staying if job.leaves_at_once or can_go_on(job, staying) else able


def can_go_on(job: Job, workers: list[Worker]) -> bool:
    return len(workers) >= job.spec.workers.min and arrange(workers, job.spec.replica).world_size > 0
