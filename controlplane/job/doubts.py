"""Messages in a worker's name that cannot be true. They are counted and ignored; the worker stays."""

from msgspec.structs import replace

from controlplane.job.state import Job
from messages.bounds import doubt
from messages.ids import Generation, WorkerId
from messages.workers import WorkerStatus

NAMED_AT_MOST = 100
"""Number of workers whose first ignored message is announced; further messages are only counted."""


def known_generation(job: Job) -> Generation:
    """The highest generation that this master decided or read. Reports of workers are not used: they are doubted."""
    prepared = job.record.prepared
    return max(job.record.generation, prepared.generation) if prepared is not None else job.record.generation


def why_doubted(job: Job, status: WorkerStatus) -> str:
    """Why a message cannot be true; empty if it can, or if the worker is gone and will only be removed."""
    if status.worker in job.gone:
        return ""
    known = job.workers.get(status.worker)
    return doubt(status, generation=known_generation(job), seq=known.seq if known is not None else -1)


def note_doubt(job: Job, worker: WorkerId, why: str) -> Job:
    named = job.doubtful.by_worker
    if worker not in named and len(named) < NAMED_AT_MOST:
        named = {**named, worker: why}
    return replace(job, doubtful=replace(job.doubtful, count=job.doubtful.count + 1, by_worker=named))
