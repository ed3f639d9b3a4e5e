"""The view of a budget for people."""

from controlplane.budget.account import account
from controlplane.budget.terms import limits_of, terms_of
from controlplane.catalog.money import MicroDollars
from controlplane.job.state import Job
from controlplane.ledger.state import Ledger
from messages.budgets import BudgetView
from messages.criteria import WhenSpent


def budget_view(
    job: Job, ledger: Ledger, dearest: MicroDollars | None, at_ms: int, note: str = "", *, blind: bool = False
) -> BudgetView:
    terms, found = terms_of(job), account(ledger, limits_of(job, dearest), at_ms, blind=blind)
    return BudgetView(
        job=job.name,
        micro_usd_total=terms.total if terms is not None else None,
        when_spent=terms.when_spent if terms is not None else WhenSpent.PAUSE,
        micro_usd=found.spent,
        assumed_micro_usd=found.assumed,
        reserve_micro_usd=found.reserve,
        paused=job.record.paused or "",
        spot_only=job.record.spot_only or "",
        note=note,
    )
