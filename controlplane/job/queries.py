"""Questions about the job as it is: who is in the world, who is ready, who could be had."""

from controlplane.job.draining import is_draining, kept
from controlplane.job.ranks import choose, ranks_of
from controlplane.job.state import Cluster, Job, Worker
from messages.ids import ClusterName, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Member

TOPOLOGY_FRESH_S = 2.5
"""An older topology tells nothing of who is silent: the controller itself may be."""
DESERTED_S = 30.0
"""A controller that is started again is back sooner."""


def members(job: Job) -> tuple[Member, ...]:
    """Of the newest world that was decided."""
    return job.record.assignment.members if job.record.assignment is not None else ()


def member_of(job: Job, worker: WorkerId) -> Member | None:
    return next((member for member in members(job) if member.worker == worker), None)


def member_of_prepared(job: Job, worker: WorkerId) -> Member | None:
    prepared = job.record.prepared.members if job.record.prepared is not None else ()
    return next((member for member in prepared if member.worker == worker), None)


def world_size(job: Job) -> int:
    return sum(member.ranks for member in members(job))


def is_decided(job: Job) -> bool:
    """The newest generation has its world."""
    return job.record.assignment is not None and job.record.assignment.generation == job.record.generation


def is_halted(job: Job) -> bool:
    """We ended the newest world ourselves: ranks then fail because we stop their peers, and that is no failure."""
    return job.record.assignment is not None and job.record.assignment.generation < job.record.generation


def has_finished(job: Job, member: Member) -> bool:
    """All its ranks exited with 0."""
    return all(rank in job.round.clean for rank in ranks_of(member))


def all_clean(job: Job) -> bool:
    return bool(members(job)) and all(has_finished(job, member) for member in members(job))


def chosen(job: Job) -> list[Worker]:
    """Who would be in a world that were decided now."""
    present = {member.worker for member in members(job)}
    return choose(kept(job, filter(can_train, job.workers.values())), job.record.wanted, present, job.spec.workers)


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


def leavers(job: Job) -> list[WorkerId]:
    """Who may go: everybody at the end or in a pause, else who holds no rank and is noticed, given up, replaced by
    newer code, or too many."""
    workers = [worker for worker in job.workers.values() if worker.seq >= 0]
    if job.record.phase.ended or job.record.rests:
        return [worker.worker for worker in workers]
    stay = {worker.worker for worker in kept(job, filter(can_train, workers))}
    given_up = [worker.worker for worker in workers if is_draining(job, worker) and worker.worker not in stay]
    if job.record.phase is Phase.WAITING:
        return given_up
    if job.record.phase is not Phase.RUNNING:
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


def is_heard(cluster: Cluster, now_s: float) -> bool:
    return now_s - cluster.heard_s <= TOPOLOGY_FRESH_S


def hears_somebody(job: Job, now_s: float) -> bool:
    """Silence of the others is theirs then, not this master's."""
    return any(is_heard(cluster, now_s) for cluster in job.clusters.values())


def deserted(job: Job, now_s: float) -> list[ClusterName]:
    """Clusters that have been silent for long, while others are heard, and in which nobody of the job is left.

    A silent controller alone proves nothing: its workers may train on."""
    if not hears_somebody(job, now_s):
        return []
    inhabited = {worker.cluster for worker in job.workers.values() if worker.seq >= 0}
    silent = (name for name, cluster in job.clusters.items() if now_s - cluster.heard_s > DESERTED_S)
    return [name for name in silent if name not in inhabited]


def present_members(job: Job) -> list[tuple[Member, Worker]]:
    return [(member, job.workers[member.worker]) for member in members(job) if member.worker in job.workers]


def unheard(job: Job) -> list[WorkerId]:
    """Members that this master knows from the record only."""
    return [worker.worker for _, worker in present_members(job) if worker.seq < 0]
