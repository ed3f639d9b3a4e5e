"""The shell of all budgets: looks at what each job has spent, each second, and tells those that have spent it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from controlplane.budget.account import account
from controlplane.budget.decide import decide, terms_in_force
from controlplane.budget.events import SpendingSeen
from controlplane.budget.terms import limits_of, terms_of
from controlplane.budget.verdict import Purse, judge
from controlplane.catalog.money import MicroDollars
from controlplane.job.events import JobEvent
from controlplane.job.state import Job
from controlplane.ledger.state import Ledger
from messages.ids import JobName
from runtime.clock import Clock
from runtime.logs import WhyLog, logger

PERIOD_S = 1.0

Dearest = Callable[[Job], MicroDollars | None]
"""An hour of the dearest machine that a job may be given, on demand, where that is known."""


class Ledgers(Protocol):
    def known(self, job: JobName) -> Ledger | None: ...

    def why_unreadable(self, job: JobName) -> str: ...

    def why_blind(self) -> str: ...


class Spender(Protocol):
    """A job that spends."""

    @property
    def state(self) -> Job: ...

    @property
    def longest_step_s(self) -> float: ...

    def post(self, event: JobEvent) -> None: ...


def why_too_many(
    job: Job, workers: int, ledger: Ledger, dearest: MicroDollars | None = None, *, at_ms: int, blind: bool = False
) -> str | None:
    """With so many the budget would be reached at once, and machines would be asked for before that is seen."""
    terms = terms_of(job)
    if terms is None or workers <= job.record.wanted:
        return None
    larger = replace(job, record=replace(job.record, wanted=workers))
    verdict = judge(terms.total, account(ledger, limits_of(larger, dearest), at_ms, blind=blind))
    return verdict.why if verdict.purse is Purse.SPENT else None


class BudgetKeeper:
    def __init__(self, ledgers: Ledgers, clock: Clock, dearest: Dearest) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._dearest = dearest
        self._log_why = WhyLog(logger(), "budget_answered")

    async def run(self, jobs: Callable[[], Iterable[Spender]]) -> None:
        """Until cancelled. What is told and gets lost on the way is told again."""
        while True:
            for spender in tuple(jobs()):
                self.look(spender)
            await asyncio.sleep(PERIOD_S)

    def look(self, spender: Spender) -> bool:
        """Whether it was told something. Before its ledger was read nothing is known of its money."""
        job = spender.state
        if terms_in_force(job) is None:
            return False
        judgement = decide(self._seen(job, spender.longest_step_s))
        if judgement.told is None:
            return False
        self._log_why(judgement.why, job=job.name)
        spender.post(judgement.told)
        return True

    def _seen(self, job: Job, longest_step_s: float) -> SpendingSeen:
        return SpendingSeen(
            self._clock.monotonic_s(),
            round(self._clock.wall_s() * 1000),
            job,
            self._ledgers.known(job.name),
            self._ledgers.why_unreadable(job.name),
            bool(self._ledgers.why_blind()),
            self._dearest(job),
            longest_step_s,
        )
