"""Questions about a job's state: which workers are in the world, are ready, or could be used."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from controlplane.job.draining import is_draining, usable
from controlplane.job.ranks import choose, ranks_of
from controlplane.job.state import Cluster, Job
from controlplane.job.workers import Worker
from messages.clusters import Presence
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Member

Answer = TypeVar("Answer")


def remembered(question: Callable[[Job], Answer]) -> Callable[[Job], Answer]:
    """Caches the answer to a question until workers, record, round or supply change.

    The question may read nothing else that changes, and no caller may change the answer.
    """

    @wraps(question)
    def answer(job: Job) -> Answer:
        known = job.workers.answers.get(question)
        if known is not None and known[0] is job.record and known[1] is job.round and known[2] is job.supply:
            return cast("Answer", known[3])
        found = question(job)
        job.workers.answers[question] = (job.record, job.round, job.supply, found)
        return found

    return answer


TOPOLOGY_FRESH_S = 2.5
"""Seconds after which a cluster's report is too old to show that a worker is silent."""
DESERTED_S = 30.0
"""Seconds of silence before an empty cluster counts as deserted; a restarted controller is back sooner."""


def members(job: Job) -> tuple[Member, ...]:
    """Members of the newest decided world."""
    return job.record.assignment.members if job.record.assignment is not None else ()


def member_of(job: Job, worker: WorkerId) -> Member | None:
    world = job.record.assignment
    return world.by_worker.get(worker) if world is not None else None


def member_of_prepared(job: Job, worker: WorkerId) -> Member | None:
    prepared = job.record.prepared
    return prepared.by_worker.get(worker) if prepared is not None else None


def world_size(job: Job) -> int:
    return job.record.assignment.world_size if job.record.assignment is not None else 0


def is_decided(job: Job) -> bool:
    """True if the world of the newest generation is decided."""
    return job.record.assignment is not None and job.record.assignment.generation == job.record.generation


def is_halted(job: Job) -> bool:
    """True if the master ended the newest world: ranks that then lose peers have not failed."""
    return job.record.assignment is not None and job.record.assignment.generation < job.record.generation


def has_finished(job: Job, member: Member) -> bool:
    """True if all ranks of the member exited with 0."""
    clean = job.round.clean
    return bool(clean) and all(rank in clean for rank in ranks_of(member))


def all_clean(job: Job) -> bool:
    return bool(job.round.clean) and bool(members(job)) and all(has_finished(job, member) for member in members(job))


@remembered
def chosen(job: Job) -> list[Worker]:
    """Workers of a world that would be decided now."""
    world = job.record.assignment
    current = world.by_worker if world is not None else {}
    return choose(usable(job, filter(can_train, job.workers.values())), job.record.wanted, current, job.spec.workers)


@remembered
def may_differ(job: Job) -> bool:
    """True if a world decided now could have other members or ranks than the current one. Does not sort."""
    world = job.record.assignment
    if world is None or job.supply.leaving or job.record.outdated or len(world.members) > job.record.wanted:
        return True
    seated = world.by_worker
    for name, worker in job.workers.items():
        member = seated.get(name)
        if (member is None or member.ranks != worker.slots) and can_train(worker):
            return True
    return False


def coming(job: Job, now_s: float) -> list[Worker]:
    """Workers that were started less than `ready_s` ago and are not warm yet."""
    limit_s = now_s - job.spec.timeouts.ready_s
    return [worker for worker in warming(job) if worker.first_seen_s > limit_s]


def warming(job: Job) -> list[Worker]:
    """Workers that were started and are not warm yet, without a notice."""
    return [worker for worker in job.workers.values() if worker.phase is WorkerPhase.WARMING and worker.noticed is None]


def can_train(worker: Worker) -> bool:
    able = worker.phase not in (WorkerPhase.WARMING, WorkerPhase.LEAVING)
    return able and worker.noticed is None and worker.slots > 0


@remembered
def leaving_workers(job: Job) -> list[WorkerId]:
    """Workers that may leave: all at the end or in a pause, else those without a rank that have a notice, are draining,
    run old code, or are surplus."""
    ends, phase = job.record.phase.ended or job.record.rests, job.record.phase
    if not ends and not (_has_idle(job) if phase is Phase.RUNNING else job.supply.leaving):
        return []
    workers = [worker for worker in job.workers.values() if worker.seq >= 0]
    if ends:
        return [worker.worker for worker in workers]
    stay = {worker.worker for worker in usable(job, filter(can_train, workers))}
    abandoned = [worker.worker for worker in workers if is_draining(job, worker) and worker.worker not in stay]
    if phase is Phase.WAITING:
        return abandoned
    if phase is not Phase.RUNNING:
        return []
    idle = [
        worker
        for worker in workers
        if member_of(job, worker.worker) is None and member_of_prepared(job, worker.worker) is None
    ]
    unwanted = {*abandoned, *job.record.outdated}
    going = [worker.worker for worker in idle if worker.noticed is not None or worker.worker in unwanted]
    surplus = max(0, len(stay.difference(going)) - job.record.wanted)
    spares = sorted(worker.worker for worker in idle if worker.worker in stay.difference(going))
    return going + (spares[-surplus:] if surplus else [])


def _has_idle(job: Job) -> bool:
    """True if a worker holds no rank."""
    idle = {*job.workers}
    for world in (job.record.assignment, job.record.prepared):
        if world is not None:
            idle -= world.by_worker.keys()
    return bool(idle)


def is_heard(cluster: Cluster, now_s: float) -> bool:
    return now_s - cluster.heard_s <= TOPOLOGY_FRESH_S


def last_heard_s(job: Job, worker: Worker) -> float:
    """When the worker was last known to be alive: each report of its controller proves it, unless it says otherwise."""
    cluster = job.clusters.get(worker.cluster)
    is_proven = cluster is not None and worker.presence is Presence.ALIVE
    return max(worker.heard_s, cluster.heard_s) if cluster is not None and is_proven else worker.heard_s


def hears_any_cluster(job: Job, now_s: float) -> bool:
    """True if a cluster is heard, so that this master is not cut off."""
    return any(is_heard(cluster, now_s) for cluster in job.clusters.values())


def deserted(job: Job, now_s: float) -> list[ClusterName]:
    """Clusters that are silent for long while others are heard, and that have no worker of the job left.

    A silent controller alone proves nothing: its workers may still train."""
    if not hears_any_cluster(job, now_s):
        return []
    silent = [name for name, cluster in job.clusters.items() if now_s - cluster.heard_s > DESERTED_S]
    if not silent:
        return []
    inhabited = {worker.cluster for worker in job.workers.values() if worker.seq >= 0}
    return [name for name in silent if name not in inhabited]


@remembered
def current_members(job: Job) -> list[tuple[Member, Worker]]:
    return [(member, job.workers[member.worker]) for member in members(job) if member.worker in job.workers]


def unheard(job: Job) -> list[WorkerId]:
    """Members that this master knows only from the record."""
    return [worker.worker for _, worker in current_members(job) if worker.seq < 0]
