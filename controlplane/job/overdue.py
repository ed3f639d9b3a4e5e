"""Workers that have not yet done what they were ordered to do, and those whose time for it is over."""

from controlplane.job.live.trainers import concerned, has_entered, is_over
from controlplane.job.queries import current_members, has_finished, hears_any_cluster, is_heard, remembered
from controlplane.job.state import Job
from controlplane.job.stopping import grace_s, is_ending
from controlplane.job.texts import not_parked
from controlplane.job.workers import Worker
from messages.ids import Generation, WorkerId
from messages.records import Phase
from messages.workers import WorkerPhase
from messages.worlds import Assignment

OVERSLEPT_S = 0.1
"""Seconds after a deadline from which this process counts as late itself: workers may have answered in time."""

PARK_ALIVE_S = 2.0
"""Seconds that trainers known to be alive have to park: on a busy machine they wait for a core."""

HUNDRED_ANSWER_S = 0.01
"""Seconds added for each hundred workers: in large worlds halts and answers take longer."""

_PARKED = frozenset((WorkerPhase.PARKED, WorkerPhase.IDLE, WorkerPhase.LEAVING))
_STARTED = frozenset((WorkerPhase.READY, WorkerPhase.ENDED))

Overdue = list[tuple[Worker, str]]


@remembered
def unready(job: Job) -> list[WorkerId]:
    """Members that are there but have not reported that their trainers started or switched."""
    world, here = job.record.assignment, current_members(job)
    if world is not None and world.live is not None:
        return [
            worker.worker
            for member, worker in here
            if not has_finished(job, member) and not has_entered(world, member, worker)
        ]
    generation = job.record.generation
    return [worker.worker for _, worker in here if worker.generation != generation or worker.phase not in _STARTED]


@remembered
def unparked(job: Job) -> list[WorkerId]:
    """Members of the halted worlds that are there and may still have trainers in them."""
    generation, ends = job.record.generation, is_ending(job)
    return [worker.worker for worker in concerned(job) if not _is_parked(worker, generation, ends=ends)]


def has_switched(job: Job, world: Assignment) -> bool:
    """True if all members are there and switched to that world. After the last step members may be missing."""
    current = [(member, job.workers[member.worker]) for member in world.members if member.worker in job.workers]
    complete = len(current) == len(world.members) or (bool(current) and is_over(job))
    return complete and all(has_entered(world, member, worker) for member, worker in current)


def some_switched(job: Job, world: Assignment) -> bool:
    """True if a trainer with the state is in that world. Joining trainers are in it from the start, without state."""
    trainers = [trainer for worker in concerned(job) for trainer in worker.trainers]
    return any(trainer.active and trainer.generation >= world.generation for trainer in trainers)


def _is_parked(worker: Worker, generation: Generation, *, ends: bool) -> bool:
    """True if its trainers have parked; if no world follows (`ends`), they must have ended."""
    if worker.trainers:
        if ends:
            return False
        if all(trainer.parked >= generation for trainer in worker.trainers):
            return True
    return worker.generation >= generation and worker.phase in _PARKED


def silent(job: Job, now_s: float) -> Overdue:
    found: Overdue = []
    for worker in (job.workers[name] for name in sorted(job.workers.silent)):
        cluster = job.clusters.get(worker.cluster)
        if cluster is None:
            continue
        silent_s = now_s - worker.heard_s
        if silent_s > job.spec.timeouts.suspect_s and is_heard(cluster, now_s):
            found.append((worker, f"silent for {silent_s:.1f} s"))
    return found


def unreachable(job: Job, late: list[WorkerId], now_s: float) -> Overdue:
    """Late workers that did not answer although their commands are repeated every second: their region may be lost.

    Empty while no cluster is heard, because then this master may be cut off itself."""
    if job.round.assigned_s is None or not hears_any_cluster(job, now_s):
        return []
    limit_s = job.spec.timeouts.suspect_s + job.spec.timeouts.stop_grace_s
    found: Overdue = []
    if now_s - job.round.assigned_s <= limit_s:
        return []
    for worker in (job.workers[name] for name in late):
        cluster = job.clusters.get(worker.cluster)
        heard_s = max(worker.heard_s, job.round.assigned_s, cluster.heard_s if cluster is not None else 0.0)
        if now_s - heard_s > limit_s:
            why = f"nothing was heard from it or cluster {worker.cluster} for {now_s - heard_s:.0f} s"
            found.append((worker, why))
    return found


def too_late(job: Job, late: list[WorkerId], what: str, now_s: float) -> Overdue:
    limit_s = patience_s(job)
    if job.round.assigned_s is None or now_s - job.round.assigned_s <= limit_s:
        return []
    return [(job.workers[name], f"{what} within {limit_s:g} s") for name in late]


def patience_s(job: Job) -> float:
    return job.spec.timeouts.ready_s + grace_s(job)


def park_by_s(job: Job) -> float | None:
    """When the first deadline of workers that have not parked passes."""
    return min((by_s for _, by_s in _parking(job)), default=None)


def unparked_in_time(job: Job, now_s: float) -> tuple[Overdue, float]:
    """Workers whose live trainers did not park in time, and the seconds by which this process missed the deadline.

    A live trainer answers a halt within milliseconds, so one that does not counts as dead."""
    halted_s, parking = job.round.halted_s or 0.0, _parking(job)
    first_s = min((by_s for _, by_s in parking), default=now_s)
    late = [(worker, not_parked(by_s - halted_s)) for worker, by_s in parking if now_s >= by_s]
    if not late or now_s <= first_s + OVERSLEPT_S:
        return late, 0.0
    return late, now_s - first_s


@remembered
def _parking(job: Job) -> list[tuple[Worker, float]]:
    """Workers whose live trainers have not parked, with their deadlines.

    A worker that reports its trainers as alive has more time, up to `PARK_ALIVE_S`. If the world ends, `grace_s` is the
    limit instead."""
    if job.record.phase is not Phase.RESHAPING or job.round.halted_s is None or is_ending(job):
        return []
    if not job.workers.live:
        return []
    everybody, late = concerned(job), [job.workers[name] for name in unparked(job)]
    halted_s = job.round.halted_s + HUNDRED_ANSWER_S * (len(everybody) // 100)
    limit_s = _park_limit_s(job, everybody, len(late))
    return [(worker, _park_by_s(job, worker, halted_s, limit_s)) for worker in late if worker.trainers]


def _park_by_s(job: Job, worker: Worker, halted_s: float, limit_s: float) -> float:
    by_s = halted_s + limit_s
    if not _is_seen_alive(job, worker):
        return by_s
    return max(by_s, min(worker.heard_s + job.spec.timeouts.park_s, halted_s + PARK_ALIVE_S))


def _park_limit_s(job: Job, everybody: list[Worker], late: int) -> float:
    """Seconds to park. Longer if no worker has parked: probably the halt did not arrive."""
    timeouts = job.spec.timeouts
    answered = late < len(everybody) and any(
        each.trainers and _is_parked(each, job.record.generation, ends=is_ending(job)) for each in everybody
    )
    return timeouts.park_s if answered else max(timeouts.park_s, timeouts.suspect_s)


def _is_seen_alive(job: Job, worker: Worker) -> bool:
    """True if the agent last reported each trainer that must park as alive."""
    generation = job.record.generation
    return all(trainer.parking >= generation for trainer in worker.trainers if trainer.parked < generation)
