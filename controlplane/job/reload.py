"""New code for a job that trains: its workers are replaced one after the other, each by a hand-over.

The next one goes only when all that are wanted are in the world, so code that does not work costs one worker and not
the job. Scripts without the SDK begin anew all at once.
"""

from dataclasses import replace

from msgspec import structs

from controlplane.job.given_up import can_go_on
from controlplane.job.present import members, present_members, wanted_by_cluster
from controlplane.job.sentences import count, describe_exit
from controlplane.job.state import Job
from messages.ids import WorkerId

WHY = "its code is taken anew"


def ask_for_reload(job: Job) -> Job:
    """Whoever is in a world, or may be on the way into one, began with the code from before."""
    if job.record.phase.ended:
        return job
    prepared = job.record.prepared.members if job.record.prepared is not None else ()
    began = dict.fromkeys([*(member.worker for member in (*members(job), *prepared)), *job.invited_s])
    outdated = tuple(worker for worker in began if worker in job.workers)
    return replace(job, record=structs.replace(job.record, outdated=outdated, reloads=job.record.reloads + 1))


def forget_outdated(job: Job, worker: WorkerId) -> Job:
    """Whoever takes its place comes with the code as it is then."""
    if worker not in job.record.outdated:
        return job
    left = tuple(other for other in job.record.outdated if other != worker)
    return replace(job, record=structs.replace(job.record, outdated=left))


def all_began_anew(job: Job) -> Job:
    return replace(job, record=structs.replace(job.record, outdated=()))


def next_to_reload(job: Job) -> WorkerId | None:
    """Of the present world, if it is complete and can do without."""
    old = _outdated_members(job)
    if not old or not _is_complete(job):
        return None
    others = [worker for member, worker in present_members(job) if member.worker != old[0]]
    return old[0] if can_go_on(job, others) else None


def tries_new_code(job: Job, worker: WorkerId) -> bool:
    """What others train with is known to work: that its code does not says nothing of them."""
    return bool(job.record.outdated) and worker not in job.record.outdated


def why_reload_waits(job: Job) -> str | None:
    """Some have the code from before, and none of them goes just now."""
    old = _outdated_members(job)
    if not old:
        return None
    here = f"{count(len(old), 'worker')} still with the code from before"
    if _is_complete(job):
        return f"{here}: at least {count(job.spec.workers.min, 'worker')} must stay, so none can be replaced"
    failed = job.newcomer_failed
    if failed is not None and failed.worker in job.workers:
        return f"{here}: on worker {failed.worker} the new code does not work ({describe_exit(failed.exit)})"
    return f"{here}: the next is replaced when all that are wanted are in the world"


def _is_complete(job: Job) -> bool:
    return bool(job.clusters) and len(members(job)) >= sum(wanted_by_cluster(job).values())


def _outdated_members(job: Job) -> list[WorkerId]:
    return [member.worker for member, _ in present_members(job) if member.worker in job.record.outdated]
