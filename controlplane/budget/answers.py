"""What follows from a verdict: the fact that the job is told, if it does not know it yet.

While machines are replaced there are more of them than later, and more is needed to give them back: what was forbidden
at such a moment would be allowed again at the next, and forbidden again. So it is for a person to allow it again, by
more money or fewer workers. That is judged once, and it has to leave twice what is kept: else it would soon be
forbidden again, for the price of machines that had hardly started.
"""

from controlplane.budget.terms import Terms
from controlplane.budget.verdict import Purse, Verdict
from controlplane.job.events import BudgetFreed, BudgetReached
from controlplane.job.state import Job, Record
from messages.criteria import WhenSpent

Told = BudgetReached | BudgetFreed

UNKNOWN = "all of it counts as spent, because the job's ledger cannot be read"


def answer(job: Job, terms: Terms, verdict: Verdict, at_s: float) -> Told | None:
    record, purse = job.record, verdict.purse
    if record.phase.ended or record.stop_why is not None:
        return None
    if record.paused is not None:
        return _judged_again(record, WhenSpent.PAUSE, verdict, at_s)
    if purse is Purse.SPENT and terms.when_spent is WhenSpent.STOP:
        return BudgetReached(at_s, WhenSpent.STOP, verdict.why, record)
    if purse is Purse.SPENT:
        return _forbidden(record, WhenSpent.PAUSE, verdict, at_s)
    if record.spot_only is not None:
        return _judged_again(record, WhenSpent.ON_DEMAND_OFF, verdict, at_s)
    if purse is Purse.SCARCE and terms.when_spent is WhenSpent.ON_DEMAND_OFF:
        return _forbidden(record, WhenSpent.ON_DEMAND_OFF, verdict, at_s)
    return None


def answer_unknown(job: Job, why: str, at_s: float) -> Told | None:
    """What was spent is not known: the job waits, whatever it asked for, until a person has seen to it."""
    record = job.record
    waits = record.paused is not None and record.budget_reached
    if waits or record.phase.ended or record.stop_why is not None:
        return None
    return BudgetReached(at_s, WhenSpent.PAUSE, f"{UNKNOWN} ({why}); `tradewind budget {job.name}` says more", record)


def _judged_again(record: Record, action: WhenSpent, verdict: Verdict, at_s: float) -> Told | None:
    if record.budget_reached:
        return None
    if verdict.purse is Purse.WITHIN:
        return BudgetFreed(at_s, action, verdict.why)
    return _forbidden(record, action, verdict, at_s)


def _forbidden(record: Record, action: WhenSpent, verdict: Verdict, at_s: float) -> BudgetReached:
    return BudgetReached(at_s, action, f"{verdict.why}; {verdict.enough}", record)
