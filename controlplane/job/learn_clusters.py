"""What the heartbeats and answers of cluster-controllers teach."""

from dataclasses import replace

from controlplane.job.doubts import note_doubt, why_doubted
from controlplane.job.learn_workers import hear_worker, is_dead, put, tombstone
from controlplane.job.sharing import heard_again
from controlplane.job.state import Cluster, Job, Worker
from messages.clusters import ClusterHeartbeat, Presence, WorkerSight
from messages.ids import ClusterName, WorkerId

PAST_INCARNATIONS_AT_MOST = 10
INCARNATION_QUIET_S = 5.0
CLUSTER_FORGOTTEN_S = 3600.0
"""Seconds before a silent, empty cluster is forgotten. It keeps no share for that long: see `sharing.py`."""


def learn_topology(job: Job, topology: ClusterHeartbeat, at_s: float) -> Job:
    before = job.clusters.get(topology.cluster)
    if before is not None and _is_old_topology(before, topology, at_s):
        return job
    restarted = before is not None and before.incarnation != topology.incarnation
    past = before.past_incarnations if before is not None else ()
    if before is not None and restarted:
        past = (*past, before.incarnation)[-PAST_INCARNATIONS_AT_MOST:]
    known = heard_again(before, at_s) if before is not None else Cluster(topology.incarnation, topology.seq, at_s, 0)
    cluster = replace(
        known,
        incarnation=topology.incarnation,
        seq=topology.seq,
        heard_s=at_s,
        keeps=topology.keeps.get(job.name, 0),
        past_incarnations=past,
    )
    job = replace(job, clusters={**_remembered(job, at_s), topology.cluster: cluster})
    if restarted:
        job = _restart_silence(job, topology.cluster, at_s)
    sights = [sight for sight in topology.workers if sight.job == job.name]
    for sight in sights:
        job = _see_worker(job, topology.cluster, sight, at_s)
    return _miss(job, topology.cluster, {sight.worker for sight in sights})


def learn_answer(job: Job, cluster: ClusterName, refusal: str) -> Job:
    known = job.clusters.get(cluster)
    if known is None or known.refusal == refusal:
        return job
    return replace(job, clusters={**job.clusters, cluster: replace(known, refusal=refusal)})


def _remembered(job: Job, at_s: float) -> dict[ClusterName, Cluster]:
    inhabited = {worker.cluster for worker in job.workers.values()}
    return {
        name: cluster
        for name, cluster in job.clusters.items()
        if cluster.keeps or name in inhabited or at_s - cluster.heard_s <= CLUSTER_FORGOTTEN_S
    }


def _is_old_topology(before: Cluster, topology: ClusterHeartbeat, at_s: float) -> bool:
    """An earlier incarnation counts again if the one that took its place is quiet: it was a stray, or has died."""
    if topology.incarnation == before.incarnation:
        return topology.seq <= before.seq
    return topology.incarnation in before.past_incarnations and at_s - before.heard_s < INCARNATION_QUIET_S


def _see_worker(job: Job, cluster: ClusterName, sight: WorkerSight, at_s: float) -> Job:
    if sight.presence is Presence.GONE:
        return tombstone(job, sight.worker, sight.why or "gone")
    if sight.status is not None:
        doubt = why_doubted(job, sight.status)
        if not doubt:
            return hear_worker(job, sight.status, at_s, heard_s=at_s - sight.silent_s, presence=sight.presence)
        return _see_doubted(job, cluster, sight, doubt, at_s)
    if is_dead(job, sight.worker):
        return job
    known = job.workers.get(sight.worker)
    if known is not None:
        heard_s = max(known.heard_s, at_s - sight.silent_s)
        silent = sight.presence is Presence.SILENT
        return put(job, replace(known, presence=sight.presence, heard_s=heard_s)) if silent else job
    return put(job, Worker(sight.worker, cluster, first_seen_s=at_s, heard_s=at_s, presence=sight.presence))


def _see_doubted(job: Job, cluster: ClusterName, sight: WorkerSight, doubt: str, at_s: float) -> Job:
    """Its controller still says whether it is there."""
    if is_dead(job, sight.worker):
        return job
    fresh = Worker(sight.worker, cluster, first_seen_s=at_s, heard_s=at_s)
    known = job.workers.get(sight.worker, fresh)
    heard_s = max(known.heard_s, at_s - sight.silent_s)
    return note_doubt(put(job, replace(known, presence=sight.presence, heard_s=heard_s)), sight.worker, doubt)


def _miss(job: Job, cluster: ClusterName, seen: set[WorkerId]) -> Job:
    """Handle workers that the topology omits: forget one that never spoke, mark one that did as silent."""
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
