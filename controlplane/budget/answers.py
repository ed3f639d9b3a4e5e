"""What follows from a verdict: the fact that the job is told, if it does not know it yet.

While machines are replaced there are more of them than later, and more is needed to give them back: what was forbidden
at such a moment would be allowed again at the next, and forbidden again. So it is for a person to allow it again.
"""

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
            return BudgetReached(at_s, WhenSpent.STOP, why, record)
        return BudgetReached(at_s, WhenSpent.PAUSE, why, record) if record.paused is None else None
    if record.paused is not None:
        return None if record.budget_reached else BudgetFreed(at_s, WhenSpent.PAUSE, why)
    if verdict.purse is Purse.SCARCE and terms.when_spent is WhenSpent.ON_DEMAND_OFF:
        return BudgetReached(at_s, WhenSpent.ON_DEMAND_OFF, why, record) if record.spot_only is None else None
    if verdict.purse is Purse.WITHIN and record.spot_only is not None and not record.budget_reached:
        return BudgetFreed(at_s, WhenSpent.ON_DEMAND_OFF, why)
    return None
