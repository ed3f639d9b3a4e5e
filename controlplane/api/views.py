"""A job as people see it: what its core knows, and what its trainers report."""

from controlplane.job.ranks import ranks_of
from controlplane.job.state import Job, Worker
from controlplane.jobs.progress import ProgressTracker
from messages.api import JobView, PausedRank, WorkerView
from messages.ids import Rank, WorkerId
from messages.measured import MeasuredProfile
from messages.worlds import Member


def job_view(
    job: Job, progress: ProgressTracker, now_s: float, measured: MeasuredProfile | None = None, warning: str = ""
) -> JobView:
    record = job.record
    world = record.assignment if record.assignment and record.assignment.generation == record.generation else None
    members = {member.worker: member for member in world.members} if world is not None else {}
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
        workers=tuple(
            _worker_view(worker, members.get(worker.worker), progress, now_s)
            for worker in sorted(job.workers.values(), key=lambda worker: _place(worker, members))
        ),
        spec=job.spec,
    )


def _worker_view(worker: Worker, member: Member | None, progress: ProgressTracker, now_s: float) -> WorkerView:
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
        heard_s=max(0.0, now_s - worker.heard_s),
        pid=worker.pid,
        paused=_paused(worker, member) if member is not None else (),
    )


def _paused(worker: Worker, member: Member) -> tuple[PausedRank, ...]:
    return tuple(
        PausedRank(Rank(member.first_rank + trainer.local_rank), trainer.paused, trainer.paused_at)
        for trainer in worker.trainers
        if trainer.paused and trainer.local_rank < member.ranks
    )


def _place(worker: Worker, members: dict[WorkerId, Member]) -> tuple[int, str]:
    """By rank, then those without one by name."""
    member = members.get(worker.worker)
    return (member.first_rank, "") if member is not None else (1 << 30, worker.worker)
