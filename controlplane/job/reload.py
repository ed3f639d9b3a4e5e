"""New code for a job that trains: its workers are replaced one after the other, each by a hand-over.

A worker is replaced only when all wanted workers are in the world and have trained for a while, so broken code costs
one worker and not the job. Scripts without the SDK restart all at once.
"""

from msgspec.structs import replace

from controlplane.job.draining import can_continue, is_draining
from controlplane.job.live.trainers import is_over, joining_workers, survivors, whole
from controlplane.job.queries import can_train, current_members, last_heard_s, member_of, members, world_size
from controlplane.job.ranks import whole_ranks
from controlplane.job.sharing import wanted_by_cluster
from controlplane.job.state import Failure, Job
from controlplane.job.texts import how_it_ended, still_run_old_code
from controlplane.job.workers import Worker
from messages.ids import WorkerId

NEW_CODE = "its code is reloaded"
PROVEN_S = 5.0
"""Seconds that a world trains before its next worker is replaced."""
INCOMPLETE = "the next is replaced when all wanted workers are in the world"
UNPROVEN = f"the next is replaced when this world has trained for {PROVEN_S:g} s"
NONE_TO_SPARE = "none can be replaced, because the job needs all of its workers"


def replaced(worker: WorkerId) -> str:
    return f"worker {worker} is replaced: {NEW_CODE}"


def new_code_failed(worker: WorkerId, how: str) -> str:
    return f"the new code failed on worker {worker} ({how})"


def ask_for_reload(job: Job) -> Job:
    """Marks every known worker as outdated: it, or its image, started with the old code."""
    if job.record.phase.ended:
        return job
    outdated = dict.fromkeys([*(member.worker for member, _ in current_members(job)), *sorted(job.workers)])
    record = replace(job.record, outdated=tuple(outdated), reloads=job.record.reloads + 1)
    return replace(job, record=record, failures=replace(job.failures, joining=None))


def forget_outdated(job: Job, worker: WorkerId) -> Job:
    """Unmarks a worker that left: its replacement loads the current code."""
    if worker not in job.record.outdated:
        return job
    left = tuple(other for other in job.record.outdated if other != worker)
    return replace(job, record=replace(job.record, outdated=left))


def all_started_again(job: Job) -> Job:
    return replace(job, record=replace(job.record, outdated=()))


def can_do_without_one(job: Job) -> bool:
    """True if the job can continue without any single one of its members."""
    here = [worker for _, worker in current_members(job)]
    are_alike = job.spec.replica == 1 or len({worker.slots for worker in here}) == 1
    return all(_can_do_without(job, here, worker) for worker in (here[:1] if are_alike else here))


def next_to_reload(job: Job) -> WorkerId | None:
    """The next member to replace; None unless the world is complete, proven, settled and can do without it."""
    old = _outdated_members(job)
    if not old:
        return None
    here = [worker for _, worker in current_members(job)]
    settled = all(can_train(worker) and not is_draining(job, worker) for worker in here)
    if not settled or not _is_complete(job) or not _is_proven(job):
        return None
    return old[0] if _can_do_without(job, here, job.workers[old[0]]) else None


def tries_new_code(job: Job, worker: WorkerId) -> bool:
    """True if the worker runs new code while a survivor still runs the old: its failure does not concern the others."""
    proven = any(other.worker in job.record.outdated for other in survivors(job))
    return proven and worker not in job.record.outdated


def why_reload_waits(job: Job) -> str | None:
    """Why no worker with the old code is being replaced; None if none is left."""
    old = _outdated_members(job)
    if not old or is_over(job):
        return None
    here = still_run_old_code(len(old))
    failed = job.failures.joining
    if failed is not None and _is_still_outside(job, failed.worker):
        return f"{here}: {new_code_failed(failed.worker, _describe(failed))}"
    if not _is_complete(job):
        return f"{here}: {INCOMPLETE}"
    return f"{here}: {UNPROVEN if can_do_without_one(job) else NONE_TO_SPARE}"


def _can_do_without(job: Job, here: list[Worker], leaving_worker: Worker) -> bool:
    return can_continue(job, whole([worker for worker in here if worker is not leaving_worker], job.spec.replica))


def _is_complete(job: Job) -> bool:
    """True if all wanted workers are here, and those without a rank would not add a whole replica."""
    coming = [
        worker
        for worker in joining_workers(job)
        if member_of(job, worker.worker) is None and worker.worker not in job.record.outdated
    ]
    here = [*(worker for _, worker in current_members(job)), *coming]
    enough = bool(job.clusters) and len(here) >= sum(wanted_by_cluster(job).values())
    return enough and whole_ranks(here, job.spec.replica) <= world_size(job)


def _is_proven(job: Job) -> bool:
    heard_s = max((last_heard_s(job, worker) for _, worker in current_members(job)), default=0.0)
    return (
        job.round.assigned_s is not None and heard_s - max(job.round.assigned_s, job.round.state_received_s) >= PROVEN_S
    )


def _is_still_outside(job: Job, worker: WorkerId) -> bool:
    return worker in job.workers and member_of(job, worker) is None and worker not in job.record.outdated


def _describe(failed: Failure) -> str:
    exit_ = failed.exit
    lines = (exit_.error or "").strip().splitlines() or exit_.tail
    return f"it {how_it_ended(exit_)}" + (f": {lines[-1].strip()}" if lines else "")


def _outdated_members(job: Job) -> list[WorkerId]:
    old = job.workers.keys() & job.record.outdated
    return [member.worker for member in members(job) if member.worker in old] if old else []
