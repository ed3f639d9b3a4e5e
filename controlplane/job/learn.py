"""First half of a decision: what an event teaches. Nothing is decided here.

Three fences keep late words from teaching anything: a tombstone for a worker that is gone, `seq` for a word older than
the newest of the same worker, and the generation for what trainers did in a world that is no more.
"""

from dataclasses import replace
from typing import assert_never

from msgspec import structs

from controlplane.job import events
from controlplane.job.present import has_finished, is_halted, member_of
from controlplane.job.ranks import ranks_of
from controlplane.job.sentences import describe_waiting
from controlplane.job.state import Cluster, Failure, Job, Store, Worker
from messages.clusters import ClusterHeartbeat, Presence, WorkerSight
from messages.ids import ClusterName, WorkerId
from messages.workers import TrainerExit, WorkerPhase, WorkerStatus

TOMBSTONES_AT_MOST = 1000
PAST_INCARNATIONS_AT_MOST = 10
INCARNATION_QUIET_S = 5.0
STORE_RETRY_S = 1.0
SAVE_RETRY_S = 0.5


def learn(job: Job, event: events.JobEvent) -> Job:
    match event:
        case events.Ticked():
            return job
        case events.WorkerSpoke(at_s, status):
            return _hear(job, status, at_s, heard_s=at_s, presence=Presence.ALIVE)
        case events.WorkerSaidLeft(_, worker, _, why):
            return bury(job, worker, why or "left")
        case events.WorkerNoticeCame(_, worker, remaining_s, source):
            return _notice(job, worker, f"its node will be taken in {remaining_s:.0f} s ({source})")
        case events.ClusterReported(at_s, topology):
            return _see(job, topology, at_s)
        case events.ClusterAnswered(_, cluster, refusal):
            return _hear_answer(job, cluster, refusal)
        case events.PlacementChanged(_, workers, shortage):
            return replace(job, placement=workers, shortage=shortage)
        case events.StoreStarted(_, generation, address):
            if generation != job.store.generation:
                return job
            return replace(job, store=Store(generation, address))
        case events.StoreFailed(at_s, generation, why):
            if generation != job.store.generation:
                return job
            return replace(job, store=Store(generation, retry_s=at_s + STORE_RETRY_S, error=why))
        case events.StoreLost():
            return replace(job, store=Store(), store_lost=True)
        case events.RanksWaited(_, generation, waiting, missing):
            if generation != job.record.generation:
                return job
            return replace(job, ranks_waiting=describe_waiting(waiting, missing))
        case events.RecordSaved(_, record):
            return replace(job, saved=record, saving=None)
        case events.SaveFailed(at_s, _):
            return replace(job, saving=None, save_retry_s=at_s + SAVE_RETRY_S)
        case events.StopAsked(_, why):
            if job.record.phase.ended:
                return job
            return replace(job, record=structs.replace(job.record, stop_why=job.record.stop_why or why))
        case events.ScaleAsked(_, workers):
            return replace(job, record=structs.replace(job.record, wanted=workers))
        case _:
            assert_never(event)


def bury(job: Job, worker: WorkerId, why: str) -> Job:
    """From now on nothing that it says counts."""
    if worker in job.gone:
        return job
    gone = {**job.gone, worker: why}
    while len(gone) > TOMBSTONES_AT_MOST:
        del gone[next(iter(gone))]
    job = replace(
        job,
        gone=gone,
        workers={key: value for key, value in job.workers.items() if key != worker},
        released_s={key: value for key, value in job.released_s.items() if key != worker},
    )
    member = member_of(job, worker)
    if member is None or has_finished(job, member) or job.record.phase.ended:
        return job
    return replace(job, lost_in_round=True, record=structs.replace(job.record, losses=job.record.losses + 1))


def _hear(job: Job, status: WorkerStatus, at_s: float, *, heard_s: float, presence: Presence) -> Job:
    if is_dead(job, status.worker):
        return replace(job, zombies={**job.zombies, status.worker: status.cluster})
    known = job.workers.get(status.worker) or Worker(status.worker, status.cluster, first_seen_s=at_s, heard_s=heard_s)
    if is_old_word(known, status):
        # Its cluster-controller may know its zone where it does not, and repeats its words with that.
        zone = known.zone or status.zone
        return _put(job, replace(known, heard_s=max(known.heard_s, heard_s), presence=presence, zone=zone))
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
        address=status.address,
        pid=status.pid,
        step=status.step if status.step is not None else known.step,
        exits=status.exits,
        noticed=known.noticed,
    )
    job = _learn_exits(_put(job, heard), heard)
    if status.notice_s is not None:
        job = _notice(job, status.worker, f"its node will be taken in {status.notice_s:.0f} s")
    if status.phase is WorkerPhase.LEAVING:
        job = _notice(job, status.worker, "it is leaving")
    return job


def is_dead(job: Job, worker: WorkerId) -> bool:
    return worker in job.gone


def is_old_word(known: Worker, status: WorkerStatus) -> bool:
    return status.seq <= known.seq


def concerns_present_world(job: Job, worker: Worker) -> bool:
    """What its trainers did counts only if they did it in the newest world."""
    assignment = job.record.assignment
    return assignment is not None and worker.generation == assignment.generation


def _learn_exits(job: Job, worker: Worker) -> Job:
    member = member_of(job, worker.worker)
    if member is None or not concerns_present_world(job, worker):
        return job
    own = [exit_ for exit_ in worker.exits if exit_.rank in ranks_of(member)]
    clean = job.clean | {exit_.rank for exit_ in own if exit_.clean}
    failed = [exit_ for exit_ in own if not exit_.clean]
    if is_halted(job) and job.failure is None:
        return replace(job, clean=clean)
    return replace(job, clean=clean, failure=_first_cause(job.failure, worker.worker, failed))


def _first_cause(known: Failure | None, worker: WorkerId, failed: list[TrainerExit]) -> Failure | None:
    """The first that failed by itself; a rank that lost its peer is only a witness."""
    for exit_ in failed:
        if known is None or (known.exit.peer_lost and not exit_.peer_lost):
            known = Failure(worker, exit_)
    return known


def _notice(job: Job, worker: WorkerId, why: str) -> Job:
    known = job.workers.get(worker)
    if known is None or known.noticed is not None:
        return job
    return _put(job, replace(known, noticed=why))


def _see(job: Job, topology: ClusterHeartbeat, at_s: float) -> Job:
    before = job.clusters.get(topology.cluster)
    if before is not None and _is_old_topology(before, topology, at_s):
        return job
    restarted = before is not None and before.incarnation != topology.incarnation
    past = before.past_incarnations if before is not None else ()
    if before is not None and restarted:
        past = (*past, before.incarnation)[-PAST_INCARNATIONS_AT_MOST:]
    cluster = Cluster(
        incarnation=topology.incarnation,
        seq=topology.seq,
        heard_s=at_s,
        keeps=topology.keeps.get(job.name, 0),
        past_incarnations=past,
        told_s=before.told_s if before is not None else None,
        refusal=before.refusal if before is not None else "",
    )
    job = replace(job, clusters={**job.clusters, topology.cluster: cluster})
    if restarted:
        job = _restart_silence(job, topology.cluster, at_s)
    sights = [sight for sight in topology.workers if sight.job == job.name]
    for sight in sights:
        job = _see_worker(job, topology.cluster, sight, at_s)
    return _miss(job, topology.cluster, {sight.worker for sight in sights})


def _is_old_topology(before: Cluster, topology: ClusterHeartbeat, at_s: float) -> bool:
    """An earlier incarnation counts again if the one that took its place is quiet: it was a stray, or has died."""
    if topology.incarnation == before.incarnation:
        return topology.seq <= before.seq
    return topology.incarnation in before.past_incarnations and at_s - before.heard_s < INCARNATION_QUIET_S


def _hear_answer(job: Job, cluster: ClusterName, refusal: str) -> Job:
    known = job.clusters.get(cluster)
    if known is None or known.refusal == refusal:
        return job
    return replace(job, clusters={**job.clusters, cluster: replace(known, refusal=refusal)})


def _see_worker(job: Job, cluster: ClusterName, sight: WorkerSight, at_s: float) -> Job:
    if sight.presence is Presence.GONE:
        return bury(job, sight.worker, sight.why or "gone")
    if sight.status is not None:
        return _hear(job, sight.status, at_s, heard_s=at_s - sight.silent_s, presence=sight.presence)
    if is_dead(job, sight.worker):
        return job
    known = job.workers.get(sight.worker)
    if known is not None:
        heard_s = max(known.heard_s, at_s - sight.silent_s)
        silent = sight.presence is Presence.SILENT
        return _put(job, replace(known, presence=sight.presence, heard_s=heard_s)) if silent else job
    return _put(job, Worker(sight.worker, cluster, first_seen_s=at_s, heard_s=at_s, presence=sight.presence))


def _miss(job: Job, cluster: ClusterName, seen: set[WorkerId]) -> Job:
    """Whoever the topology does not name: one that only was to start is forgotten, one that spoke counts as silent."""
    workers: dict[WorkerId, Worker] = {}
    for worker in job.workers.values():
        if worker.cluster != cluster or worker.worker in seen:
            workers[worker.worker] = worker
        elif worker.presence is not Presence.STARTING:
            workers[worker.worker] = replace(worker, presence=Presence.SILENT)
    return replace(job, workers=workers)


def _restart_silence(job: Job, cluster: ClusterName, at_s: float) -> Job:
    """A controller that has just started knows nothing of what was said before."""
    return replace(
        job,
        workers={
            key: replace(worker, heard_s=at_s) if worker.cluster == cluster else worker
            for key, worker in job.workers.items()
        },
    )


def _put(job: Job, worker: Worker) -> Job:
    return replace(job, workers={**job.workers, worker.worker: worker})
