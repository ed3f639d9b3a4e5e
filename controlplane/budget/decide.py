"""The budget core: judges the spending, and sends the job an event if its record does not show the result yet.

The core is stateless: the job's record has the decisions, and its ledger the spending.

While machines are replaced, the job has more of them and the reserve is larger. A decision of such a moment would be
revoked at the next one, and repeated later. So only a person revokes it, by a larger budget or fewer workers. That is
judged once, and must leave twice the reserve: otherwise the job would have to stop again soon.
"""

from dataclasses import dataclass, replace

from msgspec import structs

from controlplane.budget.account import RELEASE_S, account
from controlplane.budget.events import SpendingSeen
from controlplane.budget.terms import Terms, limits_of, terms_of
from controlplane.budget.verdict import Purse, Verdict, judge
from controlplane.catalog.money import MicroDollars
from controlplane.job.events import BudgetFreed, BudgetReached
from controlplane.job.state import Job
from controlplane.job.stopping import default_grace_s
from controlplane.ledger.state import Ledger
from messages.criteria import WhenSpent
from messages.records import Record

Change = BudgetReached | BudgetFreed

UNKNOWN = "all of it counts as spent, because the job's ledger cannot be read"
GRACE_AT_MOST_S = RELEASE_S / 2
"""Seconds of grace for trainers that a budget ends. The reserve pays for the machines meanwhile."""


@dataclass(frozen=True, slots=True)
class Judgement:
    reported: Change | None = None
    """The event for the job. If it gets lost, the next look sends it again."""
    why: str = ""


def terms_in_force(job: Job) -> Terms | None:
    """The job's budget terms; None for a job without a budget, and for one that ends or has ended."""
    is_ending = job.record.phase.ended or job.record.stop_why is not None
    return None if is_ending else terms_of(job)


def decide(seen: SpendingSeen) -> Judgement:
    job, terms = seen.job, terms_in_force(seen.job)
    if terms is None:
        return Judgement()
    if seen.unreadable:
        reported, why = _answer_unknown(job, seen.unreadable, seen.at_s), seen.unreadable
    elif seen.ledger is None:
        return Judgement()
    else:
        found = account(seen.ledger, limits_of(job, seen.dearest), seen.at_ms, blind=seen.blind)
        verdict = judge(terms.total, found)
        reported, why = answer(job.record, terms, verdict, seen.at_s), verdict.why
    if isinstance(reported, BudgetReached):
        reported = replace(reported, grace_s=min(GRACE_AT_MOST_S, default_grace_s(job, seen.longest_step_s)))
    return Judgement(reported, why)


def why_too_many(
    job: Job, workers: int, ledger: Ledger, dearest: MicroDollars | None = None, *, at_ms: int, blind: bool = False
) -> str | None:
    """Why the budget does not allow so many workers: it would be reached at once. None if it allows them."""
    terms = terms_of(job)
    if terms is None or workers <= job.record.wanted:
        return None
    larger = structs.replace(job, record=structs.replace(job.record, wanted=workers))
    verdict = judge(terms.total, account(ledger, limits_of(larger, dearest), at_ms, blind=blind))
    return verdict.why if verdict.purse is Purse.SPENT else None


def answer(record: Record, terms: Terms, verdict: Verdict, at_s: float) -> Change | None:
    purse = verdict.purse
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


def _answer_unknown(job: Job, why: str, at_s: float) -> Change | None:
    """Pause a job whose spending is not known, until a person acts."""
    record = job.record
    if record.paused is not None and record.budget_reached:
        return None
    return BudgetReached(at_s, WhenSpent.PAUSE, f"{UNKNOWN} ({why}); see `tradewind budget {job.name}`", record)


def _judged_again(record: Record, action: WhenSpent, verdict: Verdict, at_s: float) -> Change | None:
    if record.budget_reached:
        return None
    if verdict.purse is Purse.WITHIN:
        return BudgetFreed(at_s, action)
    return _forbidden(record, action, verdict, at_s)


def _forbidden(record: Record, action: WhenSpent, verdict: Verdict, at_s: float) -> BudgetReached:
    return BudgetReached(at_s, action, f"{verdict.why}; {verdict.enough}", record)
