"""The shell of all budgets: checks each job's spending every second and posts the core's events to the job."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from controlplane.budget.decide import decide, terms_in_force
from controlplane.budget.events import SpendingSeen
from controlplane.catalog.money import MicroDollars
from controlplane.job.events import JobEvent
from controlplane.job.state import Job
from controlplane.ledger.state import Ledger
from messages.ids import JobName
from runtime.clock import Clock
from runtime.logs import WhyLog, logger

PERIOD_S = 1.0

Dearest = Callable[[Job], MicroDollars | None]
"""Returns the on-demand price an hour of the most expensive machine that a job may get, if it is known."""


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


class BudgetKeeper:
    def __init__(self, ledgers: Ledgers, clock: Clock, dearest: Dearest) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._dearest = dearest
        self._log_why = WhyLog(logger(), "budget_answered")

    async def run(self, jobs: Callable[[], Iterable[Spender]]) -> None:
        """Run until cancelled. A lost event is posted again at the next look."""
        while True:
            for spender in tuple(jobs()):
                self.look(spender)
            await asyncio.sleep(PERIOD_S)

    def look(self, spender: Spender) -> bool:
        """Check one job and return whether an event was posted; none before its ledger was read."""
        job = spender.state
        if terms_in_force(job) is None:
            return False
        judgement = decide(self._seen(job, spender.longest_step_s))
        if judgement.reported is None:
            return False
        self._log_why(judgement.why, job=job.name)
        spender.post(judgement.reported)
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
