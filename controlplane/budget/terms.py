"""A job's current budget: from its file, or as its owner changed it later."""

from dataclasses import dataclass

from controlplane.budget.account import Limits
from controlplane.catalog.money import MicroDollars, micro_of
from controlplane.job.state import Job
from messages.criteria import Capacity, WhenSpent


@dataclass(frozen=True, slots=True)
class Terms:
    total: MicroDollars
    when_spent: WhenSpent


def terms_of(job: Job) -> Terms | None:
    """The job's budget terms; None for a job without a budget."""
    capacity = job.spec.capacity or Capacity()
    usd = capacity.max_usd_total if job.record.max_usd_total is None else job.record.max_usd_total
    return None if usd is None else Terms(micro_of(usd), capacity.when_spent or WhenSpent.PAUSE)


def limits_of(job: Job, dearest: MicroDollars | None = None) -> Limits:
    """The job's limits; `dearest` is the on-demand price of the most expensive machine that it may get, if known."""
    hourly = job.spec.capacity.max_usd_per_hour if job.spec.capacity is not None else None
    return Limits(job.record.wanted, None if hourly is None else micro_of(hourly), dearest)
