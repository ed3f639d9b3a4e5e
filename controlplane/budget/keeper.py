"""Looks at what every job has spent, each second, and tells those that have reached their budget."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from msgspec import structs

from controlplane.budget.account import RELEASE_S, account
from controlplane.budget.answers import Told, answer, answer_unknown
from controlplane.budget.terms import limits_of, terms_of
from controlplane.budget.verdict import Purse, judge
from controlplane.catalog.money import MicroDollars
from controlplane.job.events import BudgetReached, JobEvent
from controlplane.job.state import Job
from controlplane.job.stopping import default_grace_s
from controlplane.ledger.state import Ledger
from messages.ids import JobName
from runtime.clock import Clock

PERIOD_S = 1.0

Dearest = Callable[[Job], MicroDollars | None]
"""An hour of the dearest machine that a job may be given, on demand, where that is known."""


class Ledgers(Protocol):
    def known(self, job: JobName) -> Ledger | None: ...

    def why_unreadable(self, job: JobName) -> str: ...

    def why_blind(self) -> str: ...


GRACE_AT_MOST_S = RELEASE_S / 2
"""Seconds of grace for trainers that a budget ends. The reserve pays for the machines meanwhile."""


class Held(Protocol):
    @property
    def state(self) -> Job: ...

    @property
    def longest_step_s(self) -> float: ...

    def post(self, event: JobEvent) -> None: ...


def due(
    job: Job, ledger: Ledger, dearest: MicroDollars | None = None, *, at_s: float, at_ms: int, blind: bool = False
) -> Told | None:
    terms = terms_of(job)
    if terms is None:
        return None
    found = account(ledger, limits_of(job, dearest), at_ms, blind=blind)
    return answer(job, terms, judge(terms.total, found), at_s)


def why_too_many(
    job: Job, workers: int, ledger: Ledger, dearest: MicroDollars | None = None, *, at_ms: int, blind: bool = False
) -> str | None:
    """With so many the budget would be reached at once, and machines would be asked for before that is seen."""
    terms = terms_of(job)
    if terms is None or workers <= job.record.wanted:
        return None
    larger = replace(job, record=structs.replace(job.record, wanted=workers))
    verdict = judge(terms.total, account(ledger, limits_of(larger, dearest), at_ms, blind=blind))
    return verdict.why if verdict.purse is Purse.SPENT else None


class BudgetKeeper:
    def __init__(self, ledgers: Ledgers, clock: Clock, dearest: Dearest) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._dearest = dearest

    async def run(self, jobs: Callable[[], Iterable[Held]]) -> None:
        """Until cancelled. What is told and gets lost on the way is told again."""
        while True:
            for held in tuple(jobs()):
                self.look(held)
            await asyncio.sleep(PERIOD_S)

    def look(self, held: Held) -> bool:
        """Whether it was told something. Before its ledger was read nothing is known of its money."""
        told = self._due(held.state)
        if isinstance(told, BudgetReached):
            told = replace(told, grace_s=min(GRACE_AT_MOST_S, default_grace_s(held.state, held.longest_step_s)))
        if told is not None:
            held.post(told)
        return told is not None

    def _due(self, job: Job) -> Told | None:
        if job.record.phase.ended or terms_of(job) is None:
            return None
        now_s, now_ms = self._clock.monotonic_s(), round(self._clock.wall_s() * 1000)
        unreadable = self._ledgers.why_unreadable(job.name)
        if unreadable:
            return answer_unknown(job, unreadable, now_s)
        ledger = self._ledgers.known(job.name)
        if ledger is None:
            return None
        blind = bool(self._ledgers.why_blind())
        return due(job, ledger, self._dearest(job), at_s=now_s, at_ms=now_ms, blind=blind)
