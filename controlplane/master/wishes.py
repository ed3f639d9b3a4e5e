"""What a job asks of the market: its file's criteria, within what is left of its budget and of its deadline."""

from controlplane.allocator.demand import Demand
from controlplane.budget.terms import criteria_within_budget
from controlplane.job.state import Job
from controlplane.planning.criteria import Criteria, criteria_of
from controlplane.planning.profiles import profile_of
from messages.ids import JobName

SECONDS_PER_HOUR = 3600.0
DEADLINE_EVERY_S = 60.0
"""How often what is left of a deadline is looked at: every other criterion means another plan."""

Key = tuple[object, ...]


class Wishes:
    """Asked whenever a job decides, so what was answered is kept while nothing changes."""

    def __init__(self) -> None:
        self._answered: dict[JobName, tuple[Key, Criteria]] = {}

    def criteria(self, job: Job, step: int | None, at: float) -> Criteria | None:
        """None for a job that is not planned. `at` is in seconds since 1970."""
        if job.spec.capacity is None:
            return None
        deadline = job.spec.capacity.deadline
        moment = int(at // DEADLINE_EVERY_S) if deadline is not None else None
        key = (job.spec, job.record.submitted_at, job.record.spot_only, job.record.max_usd_total, moment)
        known = self._answered.get(job.name)
        if known is None or known[0] != key:
            known = self._answered[job.name] = (key, criteria_within_budget(job, _criteria(job, step, at)))
        return known[1]

    def demand(self, job: Job, step: int | None, at: float) -> Demand | None:
        criteria = self.criteria(job, step, at)
        return Demand(criteria, profile_of(job.spec)) if criteria is not None else None

    def forget(self, job: JobName) -> None:
        self._answered.pop(job, None)


def _criteria(job: Job, step: int | None, at: float) -> Criteria:
    deadline = job.spec.capacity.deadline if job.spec.capacity is not None else None
    if deadline is None:
        return criteria_of(job.spec)
    gone_h = max(0.0, at - job.record.submitted_at) / SECONDS_PER_HOUR
    steps_left = max(0, deadline.steps - (step or 0))
    return criteria_of(job.spec, steps_left=steps_left, hours_left=max(0.0, deadline.hours - gone_h))
