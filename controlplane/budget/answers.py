"""What follows from a verdict: the fact that the job is told, if it does not know it yet."""

from controlplane.budget.terms import Terms
from controlplane.budget.verdict import Purse, Verdict
from controlplane.job.events import BudgetFreed, BudgetReached
from controlplane.job.state import Job
from messages.criteria import WhenSpent

Told = BudgetReached | BudgetFreed


def answer(job: Job, terms: Terms, verdict: Verdict, at_s: float) -> Told | None:
    record, why = job.record, verdict.why
    if record.phase.ended or record.stop_why is not None:
        return None
    if verdict.purse is Purse.SPENT:
        if terms.when_spent is WhenSpent.STOP:
            return BudgetReached(at_s, WhenSpent.STOP, why)
        return BudgetReached(at_s, WhenSpent.PAUSE, why) if record.paused is None else None
    if record.paused is not None:
        return BudgetFreed(at_s, WhenSpent.PAUSE, why)
    if verdict.purse is Purse.SCARCE and terms.when_spent is WhenSpent.ON_DEMAND_OFF:
        return BudgetReached(at_s, WhenSpent.ON_DEMAND_OFF, why) if record.spot_only is None else None
    if verdict.purse is Purse.WITHIN and record.spot_only is not None:
        return BudgetFreed(at_s, WhenSpent.ON_DEMAND_OFF, why)
    return None
