"""Who is waited for no longer, and why. Knowledge ends a wait; these limits do where it does not come."""

from controlplane.job.hot import concerned
from controlplane.job.present import hears_somebody, is_heard
from controlplane.job.rounds import unparked
from controlplane.job.state import Job, Phase, Worker
from messages.clusters import Presence
from messages.ids import WorkerId

STALLED_S = 0.1
"""A deadline that is noticed so late was missed by this process: those who were asked may have answered long since."""

Overdue = list[tuple[Worker, str]]


def silent(job: Job, now_s: float) -> Overdue:
    found: Overdue = []
    for worker in job.workers.values():
        cluster = job.clusters.get(worker.cluster)
        if worker.presence is not Presence.SILENT or cluster is None:
            continue
        silent_s = now_s - worker.heard_s
        if silent_s > job.spec.timeouts.suspect_s and is_heard(cluster, now_s):
            found.append((worker, f"silent for {silent_s:.1f} s"))
    return found


def unreachable(job: Job, late: list[WorkerId], now_s: float) -> Overdue:
    """Who is asked every second answers by itself, also while its controller is silent: unless a region is lost.

    Only while another cluster is heard, since otherwise it may be this master that hears nothing."""
    if job.assigned_s is None or not hears_somebody(job, now_s):
        return []
    limit_s = job.spec.timeouts.suspect_s + job.spec.timeouts.stop_grace_s
    found: Overdue = []
    for worker in (job.workers[name] for name in late):
        cluster = job.clusters.get(worker.cluster)
        heard_s = max(worker.heard_s, job.assigned_s, cluster.heard_s if cluster is not None else 0.0)
        if now_s - heard_s > limit_s:
            why = f"neither it nor cluster {worker.cluster} was heard of for {now_s - heard_s:.0f} s"
            found.append((worker, why))
    return found


def too_late(job: Job, late: list[WorkerId], what: str, now_s: float) -> Overdue:
    limit_s = patience_s(job)
    if job.assigned_s is None or now_s - job.assigned_s <= limit_s:
        return []
    return [(job.workers[name], f"{what} within {limit_s:g} s") for name in late]


def patience_s(job: Job) -> float:
    return job.spec.timeouts.ready_s + job.spec.timeouts.stop_grace_s


def park_by_s(job: Job) -> float | None:
    """If nobody has parked it is rather the halt that did not arrive; and without them all would be lost anyway."""
    if job.record.phase is not Phase.RESHAPING or job.halted_s is None:
        return None
    timeouts, late = job.spec.timeouts, unparked(job)
    answered = any(worker.trainers and worker.worker not in late for worker in concerned(job))
    return job.halted_s + (timeouts.park_s if answered else max(timeouts.park_s, timeouts.suspect_s))


def slept_s(job: Job, now_s: float) -> float:
    """How much later than it should this process looks at the deadline for parking."""
    by_s = park_by_s(job)
    return now_s - by_s if by_s is not None and now_s > by_s + STALLED_S else 0.0


def unparked_in_time(job: Job, now_s: float) -> Overdue:
    """Trainers that live on answer a halt within milliseconds: one that does not is as good as dead."""
    by_s = park_by_s(job)
    if by_s is None or job.halted_s is None or now_s < by_s:
        return []
    why = f"did not park within {by_s - job.halted_s:.1f} s"
    return [(job.workers[name], why) for name in unparked(job) if job.workers[name].trainers]
