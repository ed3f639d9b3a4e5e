"""Looks at what every job has spent, each second, and tells those that have reached their budget."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from controlplane.budget.account import account
from controlplane.budget.answers import Told, answer
from controlplane.budget.terms import limits_of, terms_of
from controlplane.budget.verdict import judge
from controlplane.job.events import JobEvent
from controlplane.job.state import Job
from controlplane.ledger.state import Ledger
from messages.ids import JobName
from runtime.clock import Clock

PERIOD_S = 1.0

KnownLedger = Callable[[JobName], Ledger | None]


class Held(Protocol):
    @property
    def state(self) -> Job: ...

    def post(self, event: JobEvent) -> None: ...


def due(job: Job, ledger: Ledger, *, at_s: float, at_ms: int) -> Told | None:
    terms = terms_of(job)
    if terms is None:
        return None
    return answer(job, terms, judge(terms.total, account(ledger, limits_of(job), at_ms)), at_s)


async def keep(jobs: Callable[[], Iterable[Held]], known: KnownLedger, clock: Clock) -> None:
    """Until cancelled. What is told and gets lost on the way is told again."""
    while True:
        for held in tuple(jobs()):
            look(held, known, clock)
        await asyncio.sleep(PERIOD_S)


def look(held: Held, known: KnownLedger, clock: Clock) -> None:
    """Without its ledger nothing is known of a job's money, and nothing is done."""
    job = held.state
    if job.record.phase.ended or terms_of(job) is None:
        return
    ledger = known(job.name)
    told = due(job, ledger, at_s=clock.monotonic_s(), at_ms=round(clock.wall_s() * 1000)) if ledger else None
    if told is not None:
        held.post(told)
