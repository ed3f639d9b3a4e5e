"""The budget core: judges what is spent, and tells the job what follows if its record does not show it yet.

While machines are replaced there are more of them than later, and more is needed to give them back: what was forbidden
at such a moment would be allowed again at the next, and forbidden again. So it is for a person to allow it again, by
more money or fewer workers. That is judged once, and it has to leave twice what is kept: else it would soon be
forbidden again, for the price of machines that had hardly started.
"""

from dataclasses import replace

from controlplane.budget.account import RELEASE_S, account
from controlplane.budget.effects import BudgetEffect, TellJob
from controlplane.budget.events import BudgetEvent
from controlplane.budget.state import Budget
from controlplane.budget.terms import Terms, limits_of, terms_of
from controlplane.budget.verdict import Purse, Verdict, judge
from controlplane.job.events import BudgetFreed, BudgetReached
from controlplane.job.state import Job
from controlplane.job.stopping import default_grace_s
from messages.criteria import WhenSpent
from messages.records import Record
from runtime.decision import Decision

Told = BudgetReached | BudgetFreed

UNKNOWN = "all of it counts as spent, because the job's ledger cannot be read"
GRACE_AT_MOST_S = RELEASE_S / 2
"""Seconds of grace for trainers that a budget ends. The reserve pays for the machines meanwhile."""


def decide(_budget: Budget, event: BudgetEvent) -> Decision[Budget, BudgetEffect]:
    learned = _learn(event)
    why = learned.verdict.why if learned.verdict is not None else learned.unreadable
    told = _due(learned, event)
    if isinstance(told, BudgetReached):
        told = replace(told, grace_s=min(GRACE_AT_MOST_S, default_grace_s(event.job, event.longest_step_s)))
    return Decision(learned, (TellJob(told),) if told is not None else (), why)


def _learn(event: BudgetEvent) -> Budget:
    """Each look shows all: nothing of the state before it counts."""
    terms = terms_of(event.job)
    if terms is None or event.job.record.phase.ended or (event.ledger is None and not event.unreadable):
        return Budget(terms)
    if event.ledger is None or event.unreadable:
        return Budget(terms, unreadable=event.unreadable)
    found = account(event.ledger, limits_of(event.job, event.dearest), event.at_ms, blind=event.blind)
    return Budget(terms, judge(terms.total, found))


def _due(budget: Budget, event: BudgetEvent) -> Told | None:
    if budget.terms is None or event.job.record.phase.ended:
        return None
    if budget.unreadable:
        return answer_unknown(event.job, budget.unreadable, event.at_s)
    if budget.verdict is None:
        return None
    return answer(event.job, budget.terms, budget.verdict, event.at_s)


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
