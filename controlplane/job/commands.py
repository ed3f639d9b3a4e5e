"""Commands that are repeated until they are confirmed: save records, publish worlds, release workers, order workers.

A world is published only after its record is saved, so that a restarted master never contradicts one that died. Only a
halt of live trainers is published at once: it assigns no rank, and a worker that obeyed it reports that.
"""

from msgspec.structs import replace

from controlplane.job.effects import JobEffect, Publish, SaveRecord, TellCluster
from controlplane.job.live.trainers import concerned, is_live, lives_on, survivors, terms, to_invite
from controlplane.job.queries import is_decided, leaving_workers, may_differ
from controlplane.job.sharing import clusters_agree, wanted_by_cluster
from controlplane.job.state import Job
from controlplane.job.stopping import grace_s, is_ending
from controlplane.job.texts import workers_are
from controlplane.job.workers import Worker
from messages.clusters import KeepWorkers, RemoveWorkers, WorkerTemplate
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Assignment, Halt, Invite, Release

REPEAT_S = 1.0
"""Seconds without a confirmation before a message is sent again."""

HALTS_IN_TIME = 4
"""How often a halt is published within `park_s`."""
ADDRESSED_AT_MOST = 500
"""Workers to which a message is repeated one by one; if more lack it, it is published to all again."""
NAMED_AT_MOST = 100
"""Workers in one release."""

Asked = tuple[Job, list[JobEffect]]


def ask(job: Job, now_s: float) -> Asked:
    effects: list[JobEffect] = []
    for step in (_save, _publish, _invite, _release, _tell_clusters):
        job, asked = step(job, now_s)
        effects += asked
    return job, effects


def is_unconfirmed(job: Job) -> bool:
    """True if a command is due or not confirmed yet."""
    busy = job.record.phase in (Phase.FORMING, Phase.RESHAPING) or job.record.prepared is not None
    return busy or _is_unhalted(job) or not _is_saved(job) or bool(leaving_workers(job)) or not clusters_agree(job)


def repeats_halt_at_s(job: Job) -> float | None:
    """When to repeat a halt of live trainers. It is repeated fast, because a worker that parks late is removed."""
    if (
        job.record.phase is not Phase.RESHAPING
        or job.round.published_s is None
        or job.round.halted_s is None
        or not lives_on(job)
    ):
        return None
    pause_s = job.spec.timeouts.park_s / HALTS_IN_TIME
    last_s = job.round.halted_s + job.spec.timeouts.park_s - pause_s / 2
    return job.round.published_s + pause_s if job.round.published_s + pause_s < last_s else None


def is_due(last_s: float | None, now_s: float) -> bool:
    return last_s is None or now_s - last_s >= REPEAT_S


def _save(job: Job, now_s: float) -> Asked:
    waits = job.storage.retry_s is not None and now_s < job.storage.retry_s
    if _is_saved(job) or job.storage.saving is not None or waits:
        return job, []
    return replace(job, storage=replace(job.storage, saving=job.record, retry_s=None)), [SaveRecord(job.record)]


def _publish(job: Job, now_s: float) -> Asked:
    message = _unheard(job)
    hurry_s = repeats_halt_at_s(job)
    if message is None or not (is_due(job.round.published_s, now_s) or (hurry_s is not None and now_s >= hurry_s)):
        return job, []
    if not _is_saved(job) and not (isinstance(message, Halt) and lives_on(job)):
        return job, []
    if isinstance(message, Halt) and job.round.halted_s is None:
        job = replace(job, round=replace(job.round, halted_s=now_s))
    is_first, in_hurry = job.round.published_s is None, not is_due(job.round.published_s, now_s)
    job = replace(job, round=replace(job.round, published_s=now_s))
    if is_first:
        return job, [Publish(message)]
    lack = _lacking(job, message)
    if len(lack) > ADDRESSED_AT_MOST:
        # So many did not lose the message: some have not had the time to confirm it.
        return job, [] if in_hurry else [Publish(message)]
    return job, [Publish(message, tuple((worker.cluster, worker.worker) for worker in lack))] if lack else []


def _lacking(job: Job, message: Assignment | Halt) -> list[Worker]:
    """Workers that have not confirmed a message yet."""
    if isinstance(message, Assignment):
        return [worker for worker in concerned(job) if worker.assigned < message.generation]
    return [
        worker
        for worker in concerned(job)
        if worker.generation < message.generation or (message.ends and worker.trainers)
    ]


def _unheard(job: Job) -> Assignment | Halt | None:
    record = job.record
    if record.phase is Phase.RESHAPING or _is_unhalted(job):
        return Halt(job.name, record.generation, record.why, grace_s(job), is_ending(job))
    if record.phase is Phase.RUNNING:
        return record.prepared
    return record.assignment if record.phase is Phase.FORMING and is_decided(job) else None


def _is_unhalted(job: Job) -> bool:
    """True if live trainers left a broken world by themselves before their agents received the halt."""
    record = job.record
    return record.phase is Phase.WAITING and any(
        worker.trainers and worker.phase is WorkerPhase.READY and worker.generation < record.generation
        for worker in concerned(job)
    )


def _invite(job: Job, now_s: float) -> Asked:
    """Invites workers until their trainers are there, if live trainers run that they can join."""
    world, phase = job.record.assignment, job.record.phase
    if phase is Phase.RUNNING and not may_differ(job):
        return job, []
    open_to_all = (phase is Phase.RUNNING and is_live(job)) or (phase is Phase.WAITING and bool(survivors(job)))
    if world is None or not open_to_all or job.record.paused is not None or not _is_saved(job):
        return job, []
    due = [worker for worker in to_invite(job, now_s) if is_due(job.contacts.invited_s.get(worker), now_s)]
    if not due:
        return job, []
    invite = Invite(job.name, tuple(due), world, f"{workers_are(job.record.wanted)} wanted", terms(job))
    return replace(job, contacts=replace(job.contacts, invited_s=job.contacts.invited_s | dict.fromkeys(due, now_s))), [
        Publish(invite)
    ]


def _release(job: Job, now_s: float) -> Asked:
    """Releases workers until they are gone, and tombstoned ones each time that they speak."""
    due = [worker for worker in leaving_workers(job) if is_due(job.contacts.released_s.get(worker), now_s)]
    if not _is_saved(job) or not (due or job.contacts.stale):
        return job, []
    is_last = job.record.phase.ended or job.record.rests
    why = job.record.why if is_last else "no longer needed"
    stale: dict[tuple[ClusterName, str], list[WorkerId]] = {}
    for worker, cluster in job.contacts.stale.items():
        stale.setdefault((cluster, job.gone.get(worker, "removed")), []).append(worker)
    effects: list[JobEffect] = [Publish(each) for each in _releases(job, [*due, *job.contacts.stale], why, is_last)]
    effects += [
        TellCluster(cluster, RemoveWorkers(job.name, tuple(workers), gone_why))
        for (cluster, gone_why), workers in stale.items()
    ]
    reported = job.contacts.released_s | dict.fromkeys(due, now_s)
    return replace(job, contacts=replace(job.contacts, released_s=reported, stale={})), effects


def _releases(job: Job, workers: list[WorkerId], why: str, is_last: bool) -> list[Release]:
    """Splits a release into messages of bounded size, because every worker of the job receives all of them."""
    if is_last and len(workers) > NAMED_AT_MOST:
        return [Release(job.name, (), why, is_last, everybody=True)]
    parts = [workers[first : first + NAMED_AT_MOST] for first in range(0, len(workers), NAMED_AT_MOST)]
    return [Release(job.name, tuple(part), why, is_last) for part in parts]


def _tell_clusters(job: Job, now_s: float) -> Asked:
    effects: list[JobEffect] = []
    clusters = dict(job.clusters)
    for name, count in wanted_by_cluster(job).items():
        cluster = clusters[name]
        if cluster.keeps != count and is_due(cluster.sent_s, now_s):
            effects.append(TellCluster(name, KeepWorkers(job.name, count, _template(job))))
            clusters[name] = replace(cluster, sent_s=now_s)
    return (replace(job, clusters=clusters), effects) if effects else (job, [])


def _template(job: Job) -> WorkerTemplate:
    launch, workers = job.spec.launch, job.spec.workers
    return WorkerTemplate(
        slots=workers.ranks,
        python=launch.python,
        env=launch.host_env,
        pod=job.spec.pod,
        divide_gpus=workers.max > 1,
    )


def _is_saved(job: Job) -> bool:
    return job.storage.saved == job.record
