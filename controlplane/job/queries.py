"""Questions about the job as it is: who is in the world, who is ready, who could be had."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from controlplane.job.draining import is_draining, kept
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

    A decision asks it several times. The question may read nothing else that changes, and no caller changes the answer.
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
"""An older topology tells nothing of who is silent: the controller itself may be."""
DESERTED_S = 30.0
"""A controller that is started again is back sooner."""


def members(job: Job) -> tuple[Member, ...]:
    """Of the newest world that was decided."""
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
    """The newest generation has its world."""
    return job.record.assignment is not None and job.record.assignment.generation == job.record.generation


def is_halted(job: Job) -> bool:
    """We ended the newest world ourselves: ranks then fail because we stop their peers, and that is no failure."""
    return job.record.assignment is not None and job.record.assignment.generation < job.record.generation


def has_finished(job: Job, member: Member) -> bool:
    """All its ranks exited with 0."""
    clean = job.round.clean
    return bool(clean) and all(rank in clean for rank in ranks_of(member))


def all_clean(job: Job) -> bool:
    return bool(job.round.clean) and bool(members(job)) and all(has_finished(job, member) for member in members(job))


@remembered
def chosen(job: Job) -> list[Worker]:
    """Who would be in a world that were decided now."""
    world = job.record.assignment
    present = world.by_worker if world is not None else {}
    return choose(kept(job, filter(can_train, job.workers.values())), job.record.wanted, present, job.spec.workers)


@remembered
def may_differ(job: Job) -> bool:
    """Whether a world decided now could have other members or ranks than the present one: a look without sorting."""
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
    """Workers that were started and are not warm yet, but for those that take too long."""
    limit_s = now_s - job.spec.timeouts.ready_s
    return [worker for worker in warming(job) if worker.first_seen_s > limit_s]


def warming(job: Job) -> list[Worker]:
    """Workers that were started and are not warm yet, without a notice."""
    return [worker for worker in job.workers.values() if worker.phase is WorkerPhase.WARMING and worker.noticed is None]


def can_train(worker: Worker) -> bool:
    able = worker.phase not in (WorkerPhase.WARMING, WorkerPhase.LEAVING)
    return able and worker.noticed is None and worker.slots > 0


@remembered
def leavers(job: Job) -> list[WorkerId]:
    """Who may go: everybody at the end or in a pause, else who holds no rank and is noticed, given up, replaced by
    newer code, or too many."""
    ends, phase = job.record.phase.ended or job.record.rests, job.record.phase
    if not ends and not (_has_idle(job) if phase is Phase.RUNNING else job.supply.leaving):
        return []
    workers = [worker for worker in job.workers.values() if worker.seq >= 0]
    if ends:
        return [worker.worker for worker in workers]
    stay = {worker.worker for worker in kept(job, filter(can_train, workers))}
    given_up = [worker.worker for worker in workers if is_draining(job, worker) and worker.worker not in stay]
    if phase is Phase.WAITING:
        return given_up
    if phase is not Phase.RUNNING:
        return []
    idle = [
        worker
        for worker in workers
        if member_of(job, worker.worker) is None and member_of_prepared(job, worker.worker) is None
    ]
    unwanted = {*given_up, *job.record.outdated}
    going = [worker.worker for worker in idle if worker.noticed is not None or worker.worker in unwanted]
    surplus = max(0, len(stay.difference(going)) - job.record.wanted)
    spares = sorted(worker.worker for worker in idle if worker.worker in stay.difference(going))
    return going + (spares[-surplus:] if surplus else [])


def _has_idle(job: Job) -> bool:
    """Some worker holds no rank."""
    idle = {*job.workers}
    for world in (job.record.assignment, job.record.prepared):
        if world is not None:
            idle -= world.by_worker.keys()
    return bool(idle)


def is_heard(cluster: Cluster, now_s: float) -> bool:
    return now_s - cluster.heard_s <= TOPOLOGY_FRESH_S


def last_heard_s(job: Job, worker: Worker) -> float:
    """When it was known to be alive: the reports of its controller prove it until one says otherwise."""
    cluster = job.clusters.get(worker.cluster)
    is_proven = cluster is not None and worker.presence is Presence.ALIVE
    return max(worker.heard_s, cluster.heard_s) if cluster is not None and is_proven else worker.heard_s


def hears_somebody(job: Job, now_s: float) -> bool:
    """Silence of the others is theirs then, not this master's."""
    return any(is_heard(cluster, now_s) for cluster in job.clusters.values())


def deserted(job: Job, now_s: float) -> list[ClusterName]:
    """Clusters that have been silent for long, while others are heard, and in which nobody of the job is left.

    A silent controller alone proves nothing: its workers may train on."""
    if not hears_somebody(job, now_s):
        return []
    silent = [name for name, cluster in job.clusters.items() if now_s - cluster.heard_s > DESERTED_S]
    if not silent:
        return []
    inhabited = {worker.cluster for worker in job.workers.values() if worker.seq >= 0}
    return [name for name in silent if name not in inhabited]


@remembered
def present_members(job: Job) -> list[tuple[Member, Worker]]:
    return [(member, job.workers[member.worker]) for member in members(job) if member.worker in job.workers]


def unheard(job: Job) -> list[WorkerId]:
    """Members that this master knows from the record only."""
    return [worker.worker for _, worker in present_members(job) if worker.seq < 0]
