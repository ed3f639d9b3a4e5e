"""The job's request to its allocator, sent when it changes."""

from msgspec.structs import replace

from controlplane.job.effects import WantNodes
from controlplane.job.queries import deserted
from controlplane.job.state import DeadlineLeft, Job, Want

DEADLINE_EVERY_S = 60.0
"""Seconds between updates of what is left of a deadline, because each update causes a new plan."""
SECONDS_PER_HOUR = 3600.0


def want_nodes(job: Job, now_s: float) -> tuple[Job, list[WantNodes]]:
    want = _next_want(job, now_s)
    if job.supply.want is not None and replace(want, number=job.supply.want.number) == job.supply.want:
        return job, []
    return replace(job, supply=replace(job.supply, want=want)), [WantNodes(want)]


def _next_want(job: Job, now_s: float) -> Want:
    """The current request, with the number that follows the last."""
    record = job.record
    return Want(
        number=job.supply.want.number + 1 if job.supply.want is not None else 1,
        nodes=record.wanted if record.paused is None else 0,
        ended=record.why if record.phase.ended else None,
        spot_only=record.spot_only is not None,
        max_usd_total=record.max_usd_total,
        deadline=_deadline_left(job, now_s),
        lost=frozenset(deserted(job, now_s)),
    )


def _deadline_left(job: Job, now_s: float) -> DeadlineLeft | None:
    deadline = job.spec.capacity.deadline if job.spec.capacity is not None else None
    if deadline is None:
        return None
    known = job.supply.want.deadline if job.supply.want is not None else None
    if known is not None and now_s - known.at_s < DEADLINE_EVERY_S:
        return known
    done = max((cluster.step for cluster in job.clusters.values()), default=0)
    steps = min(deadline.steps if known is None else known.steps, max(0, deadline.steps - done))
    seconds = job.submitted_s + deadline.hours * SECONDS_PER_HOUR - now_s
    return DeadlineLeft(steps, max(0.0, seconds), now_s)
