"""What a job learns from messages of workers: which are there, which have a notice, which are gone for good."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from controlplane.job.doubts import note_doubt
from controlplane.job.learn_exits import learn_ends, learn_exits, learn_fallen
from controlplane.job.live.trainers import is_over
from controlplane.job.queries import has_finished, member_of, member_of_prepared
from controlplane.job.ranks import ranks_of
from controlplane.job.reload import forget_outdated
from controlplane.job.scripts import has_first_step, has_fresh_checkpoint, note_progress
from controlplane.job.state import Barred, Job, Unfit
from controlplane.job.stopping import note_checkpoint
from controlplane.job.texts import noticed
from controlplane.job.workers import Worker
from messages.clusters import Presence
from messages.ids import WorkerId
from messages.workers import WorkerPhase, WorkerStatus
from runtime.backoff import pause_after

TOMBSTONES_AT_MOST = 20_000
FORGIVEN_S = 60.0
"""Seconds after the end of a bar before the worker's failures are forgotten, if its trainers train."""
HEARD_AGAIN_S = 0.5
"""Seconds within which a repeated status counts only if presence, zone or node changed: controllers repeat what workers
sent directly."""
OF_EARLIER_JOB = "it belongs to an earlier job of this name"

Value = TypeVar("Value")


def hear_worker(job: Job, status: WorkerStatus, at_s: float, *, heard_s: float, presence: Presence) -> Job:
    known = job.workers.get(status.worker) or Worker(status.worker, status.cluster, first_seen_s=at_s, heard_s=heard_s)
    if status.submitted_at and status.submitted_at != job.record.submitted_at:
        if not job.is_submission_known:
            job = _learn_submission(job, status.submitted_at)
        elif known.seq >= 0:  # a forged message must not end a worker that is known to be of this job
            return note_doubt(job, status.worker, "it names another submission of the job")
        else:
            job = tombstone(job, status.worker, OF_EARLIER_JOB)
    if is_dead(job, status.worker):
        return replace(job, contacts=replace(job.contacts, stale={**job.contacts.stale, status.worker: status.cluster}))
    if is_old_message(known, status):
        # The cluster-controller adds the zone and the node, which the worker itself may not know.
        zone, node = known.zone or status.zone, known.node or status.node
        is_same = (presence, zone, node) == (known.presence, known.zone, known.node)
        if is_same and heard_s - known.heard_s < HEARD_AGAIN_S:
            return job
        return put(job, replace(known, heard_s=max(known.heard_s, heard_s), presence=presence, zone=zone, node=node))
    heard = Worker(
        worker=status.worker,
        cluster=status.cluster,
        first_seen_s=known.first_seen_s,
        heard_s=max(known.heard_s, heard_s),
        presence=presence,
        seq=status.seq,
        phase=status.phase,
        generation=status.generation,
        slots=status.slots,
        region=status.region,
        zone=status.zone or known.zone,
        node=status.node or known.node,
        address=status.address,
        pid=status.pid,
        step=status.step if status.step is not None else known.step,
        checkpoints=status.checkpoints,
        exits=status.exits,
        fallen=status.fallen,
        noticed=known.noticed,
        deadline_s=known.deadline_s,
        trainers=status.trainers,
        assigned=status.assigned,
    )
    if job.failures.unfit.workers and status.phase not in (WorkerPhase.WARMING, WorkerPhase.LEAVING):
        job = replace(job, failures=replace(job.failures, unfit=Unfit()))
    if _active_ranks(heard) - _active_ranks(known):
        job = replace(job, round=replace(job.round, state_received_s=at_s))
    if status.step is not None and has_first_step(job, heard):
        job = note_progress(job, at_s, by_step=True)
    if has_fresh_checkpoint(job, known, heard):
        job = replace(job, script=replace(job.script, checkpointed_s=at_s))
    if heard.checkpoints and not job.record.checkpointed:
        job = replace(job, record=replace(job.record, checkpointed=True))
    job = learn_ends(learn_fallen(learn_exits(put(job, heard), heard), heard), known, heard)
    job = note_checkpoint(_note_certificate(_bar(job, known, heard, at_s), heard), status.checkpoint)
    if status.notice_s is not None:
        job = learn_notice(job, status.worker, noticed(status.notice_s), heard_s + status.notice_s)
    if status.phase is WorkerPhase.LEAVING:
        job = learn_notice(job, status.worker, "it is leaving", heard_s)
    return job


def tombstone(job: Job, worker: WorkerId, why: str) -> Job:
    """Removes a worker: from now on its messages are ignored."""
    return tombstone_all(job, {worker: why})


def tombstone_all(job: Job, lost: Mapping[WorkerId, str]) -> Job:
    """Removes many workers at once: from now on their messages are ignored."""
    fresh = {worker: why for worker, why in lost.items() if worker not in job.gone}
    if not fresh:
        return job
    was_over = is_over(job)
    gone = {**job.gone, **fresh}
    for oldest in [*gone][: max(0, len(gone) - TOMBSTONES_AT_MOST)]:
        del gone[oldest]
    job = replace(job, gone=gone)
    for worker in fresh:
        job = _forget(job, worker, was_over=was_over)
    return job


def _forget(job: Job, worker: WorkerId, *, was_over: bool) -> Job:
    was_released = worker in job.contacts.released_s
    job.workers.drop(worker)
    if was_released or worker in job.contacts.invited_s:
        contacts = job.contacts
        released_s, invited_s = _without(contacts.released_s, worker), _without(contacts.invited_s, worker)
        job = replace(job, contacts=replace(contacts, released_s=released_s, invited_s=invited_s))
    if worker in job.failures.barred:
        job = replace(job, failures=replace(job.failures, barred=_without(job.failures.barred, worker)))
    job = forget_outdated(job, worker)
    member = member_of(job, worker)
    if member is not None and was_over:
        job = replace(job, round=replace(job.round, clean=job.round.clean | set(ranks_of(member))))
    is_member = member is not None or member_of_prepared(job, worker) is not None
    needless = was_released or job.record.phase.ended or job.record.rests
    if needless or not is_member or (member is not None and has_finished(job, member)):
        return job
    return replace(
        job,
        record=replace(job.record, losses=job.record.losses + 1),
        round=replace(job.round, lost_member=True),
    )


def learn_notice(job: Job, worker: WorkerId, why: str, deadline_s: float) -> Job:
    """Marks a worker with a notice. The first reason and the earliest deadline count."""
    known = job.workers.get(worker)
    if known is None:
        return job
    earliest_s = deadline_s if known.deadline_s is None else min(known.deadline_s, deadline_s)
    return put(job, replace(known, noticed=known.noticed or why, deadline_s=earliest_s))


def is_dead(job: Job, worker: WorkerId) -> bool:
    return worker in job.gone


def knows(job: Job, worker: WorkerId) -> bool:
    """True if the worker is or was one of this job."""
    return worker in job.workers or job.gone.get(worker, OF_EARLIER_JOB) != OF_EARLIER_JOB


def is_old_message(known: Worker, status: WorkerStatus) -> bool:
    return status.seq <= known.seq


def put(job: Job, worker: Worker) -> Job:
    """Changes the table in place; it must be the decision's own copy."""
    job.workers.put(worker)
    return job


def _without(table: dict[WorkerId, Value], worker: WorkerId) -> dict[WorkerId, Value]:
    return {key: value for key, value in table.items() if key != worker}


def _learn_submission(job: Job, submitted_at: float) -> Job:
    """Learns the time of submission from a worker, because the record of the job was lost."""
    submitted_s = job.submitted_s + submitted_at - job.record.submitted_at
    record = replace(job.record, submitted_at=submitted_at)
    return replace(job, is_submission_known=True, submitted_s=submitted_s, record=record)


def _active_ranks(worker: Worker) -> set[int]:
    return {trainer.local_rank for trainer in worker.trainers if trainer.active}


def _note_certificate(job: Job, heard: Worker) -> Job:
    """Stores the first certificate. All ranks report the same one, because an all-reduce computes it."""
    reported = next((trainer.certificate for trainer in heard.trainers if trainer.certificate is not None), None)
    if reported is None or job.record.certificate is not None or job.record.phase.ended:
        return job
    return replace(job, record=replace(job.record, certificate=reported))


def _bar(job: Job, known: Worker, heard: Worker, at_s: float) -> Job:
    """Bars a worker whose trainers failed by themselves, each time for longer."""
    barred = job.failures.barred.get(heard.worker)
    forgiven = barred is not None and at_s >= barred.until_s + FORGIVEN_S
    if forgiven and any(trainer.active for trainer in heard.trainers):
        return replace(job, failures=replace(job.failures, barred=_without(job.failures.barred, heard.worker)))
    if not (heard.exits or heard.fallen):
        return job
    failed = [exit_ for exit_ in heard.exits if (not exit_.clean or exit_.early) and exit_ not in known.exits]
    if not failed and set(heard.fallen) <= set(known.fallen):
        return job
    failures, limits = barred.failures + 1 if barred is not None else 1, job.spec.failures
    until_s = at_s + pause_after(failures, limits.backoff_s, limits.backoff_max_s)
    return replace(
        job, failures=replace(job.failures, barred={**job.failures.barred, heard.worker: Barred(failures, until_s)})
    )
