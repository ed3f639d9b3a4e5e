"""What the heartbeats and answers of cluster-controllers teach."""

from msgspec.structs import replace

from controlplane.job.doubts import note_doubt, why_doubted
from controlplane.job.events import ClusterReported
from controlplane.job.learn_workers import hear_worker, is_dead, put, tombstone_all
from controlplane.job.sharing import heard_again
from controlplane.job.state import Cluster, Job
from controlplane.job.workers import Worker
from messages.clusters import Presence, WorkerSight
from messages.ids import ClusterName, WorkerId

CLUSTER_FORGOTTEN_S = 3600.0
"""Seconds before a silent, empty cluster is forgotten. It keeps no share for that long: see `sharing.py`."""


def learn_report(job: Job, report: ClusterReported) -> Job:
    at_s, name = report.at_s, report.cluster
    before = job.clusters.get(name)
    restarted = before is not None and before.incarnation != report.incarnation
    known = heard_again(before, at_s) if before is not None else Cluster(report.incarnation, at_s, 0)
    cluster = replace(known, incarnation=report.incarnation, heard_s=at_s, keeps=report.keeps, step=report.step)
    job = replace(job, clusters={**_remembered(job, at_s), name: cluster})
    if restarted:
        job = _restart_silence(job, name, at_s)
    gone = {sight.worker: sight.why or "gone" for sight in report.sights if sight.presence is Presence.GONE}
    for sight in report.sights:
        if sight.worker not in gone:
            job = _see_worker(job, name, sight, at_s)
    job = tombstone_all(job, gone) if gone else job
    if report.is_whole:
        return _miss_all_but(job, name, {sight.worker for sight in report.sights})
    return _miss(job, [job.workers[worker] for worker in report.forgotten if worker in job.workers])


def learn_answer(job: Job, cluster: ClusterName, refusal: str) -> Job:
    known = job.clusters.get(cluster)
    if known is None or known.refusal == refusal:
        return job
    return replace(job, clusters={**job.clusters, cluster: replace(known, refusal=refusal)})


def _remembered(job: Job, at_s: float) -> dict[ClusterName, Cluster]:
    old = {
        name
        for name, cluster in job.clusters.items()
        if not cluster.keeps and at_s - cluster.heard_s > CLUSTER_FORGOTTEN_S
    }
    if not old:
        return job.clusters
    forgotten = old - {worker.cluster for worker in job.workers.values()}
    return {name: cluster for name, cluster in job.clusters.items() if name not in forgotten}


def _see_worker(job: Job, cluster: ClusterName, sight: WorkerSight, at_s: float) -> Job:
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


def _miss_all_but(job: Job, cluster: ClusterName, seen: set[WorkerId]) -> Job:
    return _miss(job, [each for each in job.workers.values() if each.cluster == cluster and each.worker not in seen])


def _miss(job: Job, missed: list[Worker]) -> Job:
    """Handle workers that their controller does not list: forget one that never spoke, mark one that did as silent."""
    for worker in missed:
        if worker.presence is Presence.STARTING:
            job.workers.drop(worker.worker)
        elif worker.presence is not Presence.SILENT:
            job.workers.put(replace(worker, presence=Presence.SILENT))
    return job


def _restart_silence(job: Job, cluster: ClusterName, at_s: float) -> Job:
    """A controller that has just started knows nothing of what was said before."""
    for worker in [each for each in job.workers.values() if each.cluster == cluster]:
        job.workers.put(replace(worker, heard_s=at_s))
    return job
