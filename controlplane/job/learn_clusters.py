"""What a job learns from reports and answers of cluster-controllers."""

from msgspec.structs import replace

from controlplane.job.doubts import note_doubt, why_doubted
from controlplane.job.events import ClusterReported
from controlplane.job.forgetting import has_anything_in, is_long_silent
from controlplane.job.learn_workers import hear_worker, is_dead, put, tombstone_all
from controlplane.job.sharing import heard_again
from controlplane.job.state import Cluster, Job
from controlplane.job.workers import Worker
from messages.clusters import Presence, WorkerObservation
from messages.ids import ClusterName, WorkerId


def learn_report(job: Job, report: ClusterReported) -> Job:
    at_s, name = report.at_s, report.cluster
    before = job.clusters.get(name)
    restarted = before is not None and before.incarnation != report.incarnation
    known = heard_again(before, at_s) if before is not None else Cluster(report.incarnation, at_s, 0)
    cluster = replace(known, incarnation=report.incarnation, heard_s=at_s, keeps=report.keeps, step=report.step)
    job = replace(job, clusters={**_remembered(job, at_s), name: cluster})
    if restarted:
        job = _restart_silence(job, name, at_s)
    gone = {
        observation.worker: observation.why or "gone"
        for observation in report.observations
        if observation.presence is Presence.GONE
    }
    for observation in report.observations:
        if observation.worker not in gone:
            job = _see_worker(job, name, observation, at_s)
    job = tombstone_all(job, gone) if gone else job
    if report.is_whole:
        return _miss_all_but(job, name, {observation.worker for observation in report.observations})
    return _miss(job, [job.workers[worker] for worker in report.forgotten if worker in job.workers])


def learn_answer(job: Job, cluster: ClusterName, refusal: str) -> Job:
    known = job.clusters.get(cluster)
    if known is None or known.refusal == refusal:
        return job
    return replace(job, clusters={**job.clusters, cluster: replace(known, refusal=refusal)})


def _remembered(job: Job, at_s: float) -> dict[ClusterName, Cluster]:
    silent = [name for name, cluster in job.clusters.items() if is_long_silent(cluster.heard_s, at_s)]
    forgotten = [name for name in silent if not has_anything_in(job, name)]
    return {name: cluster for name, cluster in job.clusters.items() if name not in forgotten}


def _see_worker(job: Job, cluster: ClusterName, observation: WorkerObservation, at_s: float) -> Job:
    if observation.status is not None:
        doubt = why_doubted(job, observation.status)
        if not doubt:
            return hear_worker(
                job, observation.status, at_s, heard_s=at_s - observation.silent_s, presence=observation.presence
            )
        return _see_doubted(job, cluster, observation, doubt, at_s)
    if is_dead(job, observation.worker):
        return job
    known = job.workers.get(observation.worker)
    if known is not None:
        heard_s = max(known.heard_s, at_s - observation.silent_s)
        silent = observation.presence is Presence.SILENT
        return put(job, replace(known, presence=observation.presence, heard_s=heard_s)) if silent else job
    return put(job, Worker(observation.worker, cluster, first_seen_s=at_s, heard_s=at_s, presence=observation.presence))


def _see_doubted(job: Job, cluster: ClusterName, observation: WorkerObservation, doubt: str, at_s: float) -> Job:
    """Learns from the controller whether a worker is there whose message is ignored."""
    if is_dead(job, observation.worker):
        return job
    fresh = Worker(observation.worker, cluster, first_seen_s=at_s, heard_s=at_s)
    known = job.workers.get(observation.worker, fresh)
    heard_s = max(known.heard_s, at_s - observation.silent_s)
    return note_doubt(
        put(job, replace(known, presence=observation.presence, heard_s=heard_s)), observation.worker, doubt
    )


def _miss_all_but(job: Job, cluster: ClusterName, seen: set[WorkerId]) -> Job:
    return _miss(job, [each for each in job.workers.values() if each.cluster == cluster and each.worker not in seen])


def _miss(job: Job, missed: list[Worker]) -> Job:
    """Handles workers that their controller does not list: forgets those that never spoke, marks the others silent."""
    for worker in missed:
        if worker.presence is Presence.STARTING:
            job.workers.drop(worker.worker)
        elif worker.presence is not Presence.SILENT:
            job.workers.put(replace(worker, presence=Presence.SILENT))
    return job


def _restart_silence(job: Job, cluster: ClusterName, at_s: float) -> Job:
    """Restarts the time of silence of a cluster's workers, because its new controller has heard none of them yet."""
    for worker in [each for each in job.workers.values() if each.cluster == cluster]:
        job.workers.put(replace(worker, heard_s=at_s))
    return job
