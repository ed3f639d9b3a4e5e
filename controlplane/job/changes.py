"""Why the present world cannot, or should not, stay as it is."""

from controlplane.job.present import chosen, has_finished, members, world_size
from controlplane.job.ranks import arrange
from controlplane.job.sentences import describe_exit, name_workers
from controlplane.job.state import Job, Phase


def must_change(job: Job) -> str | None:
    if job.record.stop_why is not None:
        return job.record.stop_why
    for member in members(job):
        if has_finished(job, member):
            continue
        worker = job.workers.get(member.worker)
        if worker is None:
            return f"worker {member.worker} was lost: {job.gone.get(member.worker, 'gone')}"
        if worker.noticed is not None:
            return f"worker {member.worker} has to go: {worker.noticed}"
    if job.failure is not None:
        return describe_exit(job.failure.exit)
    if job.store_lost and job.record.phase is Phase.FORMING:
        return "the store was lost before the ranks had met"
    return None


def could_be_better(job: Job) -> str | None:
    """More ranks could be had, or fewer are wanted. Not worth it once ranks have begun to finish."""
    if job.clean:
        return None
    if len(members(job)) > job.record.wanted:
        return f"scaled to {job.record.wanted} workers"
    candidates = chosen(job)
    if arrange(candidates, job.spec.replica).world_size <= world_size(job):
        return None
    present = {member.worker for member in members(job)}
    joined = [worker.worker for worker in candidates if worker.worker not in present]
    return f"{name_workers(joined)} joined" if joined else "there is room for more ranks"
