"""Views of a job and its workers in the API, from the state of the job's core and the reports of its trainers."""

from controlplane.job.queries import is_decided, last_heard_s
from controlplane.job.ranks import ranks_of
from controlplane.job.state import Job
from controlplane.job.workers import Worker
from controlplane.jobs.progress import ProgressTracker
from messages.api import JobView, PausedRank, WorkerPage, WorkerView
from messages.ids import Rank
from messages.measured import MeasuredProfile
from messages.worlds import Assignment, Member

WORKERS_SHOWN = 200
"""Maximum number of workers in the view of a job; clients read the others in pages."""


def job_view(
    job: Job,
    progress: ProgressTracker,
    now_s: float,
    measured: MeasuredProfile | None = None,
    warning: str = "",
    workers_at_most: int = WORKERS_SHOWN,
) -> JobView:
    record, world = job.record, _decided_world(job)
    return JobView(
        name=job.name,
        phase=record.phase,
        why=job.why,
        generation=record.generation,
        world_size=world.world_size if world is not None else 0,
        wanted=record.wanted,
        failures=record.failures,
        losses=record.losses,
        paused=record.paused is not None,
        submitted_at=record.submitted_at,
        step=progress.step,
        loss=progress.loss,
        loss_nonfinite=progress.is_nonfinite,
        nonfinite=progress.counted.nonfinite,
        skipped=progress.counted.skipped,
        samples_per_s=progress.samples_per_s,
        measured=measured,
        stop_grace_s=record.stop_grace_s,
        checkpoint=job.checkpoint,
        certificate=record.certificate,
        outdated=len(record.outdated),
        warning=warning,
        workers=worker_page(job, progress, now_s, 0, workers_at_most).workers,
        workers_total=len(job.workers),
        spec=job.spec,
    )


def worker_page(job: Job, progress: ProgressTracker, now_s: float, first: int, at_most: int) -> WorkerPage:
    """A page of the job's workers: members of the world in the order of its ranks, then the others by name."""
    world = _decided_world(job)
    members = world.by_worker if world is not None else {}
    names = [name for name in members if name in job.workers]
    if first + at_most > len(names):
        names += sorted(name for name in job.workers if name not in members)
    shown = tuple(
        _worker_view(job, job.workers[name], members.get(name), progress, now_s)
        for name in names[first : first + at_most]
    )
    return WorkerPage(shown, first + at_most if first + at_most < len(job.workers) else None)


def _decided_world(job: Job) -> Assignment | None:
    """The world of the newest generation, which may still form; None until it is decided."""
    return job.record.assignment if is_decided(job) else None


def _worker_view(
    job: Job, worker: Worker, member: Member | None, progress: ProgressTracker, now_s: float
) -> WorkerView:
    reported = progress.workers.get(worker.worker)
    return WorkerView(
        worker=worker.worker,
        cluster=worker.cluster,
        phase=worker.phase,
        presence=worker.presence,
        generation=worker.generation,
        ranks=ranks_of(member) if member is not None else (),
        step=reported.step if reported is not None else worker.step,
        loss=reported.loss if reported is not None else None,
        loss_nonfinite=reported is not None and reported.nonfinite,
        samples_per_s=reported.samples_per_s if reported is not None else None,
        heard_s=max(0.0, now_s - last_heard_s(job, worker)),
        pid=worker.pid,
        paused=_paused(worker, member) if member is not None else (),
    )


def _paused(worker: Worker, member: Member) -> tuple[PausedRank, ...]:
    return tuple(
        PausedRank(Rank(member.first_rank + trainer.local_rank), trainer.paused, trainer.paused_at)
        for trainer in worker.trainers
        if trainer.paused and trainer.local_rank < member.ranks
    )
