"""The budgets of a master's jobs: enforced, shown, and raised by people."""

from msgspec import structs

from controlplane.budget.decide import why_too_many
from controlplane.budget.keeper import BudgetKeeper
from controlplane.budget.terms import terms_of
from controlplane.budget.views import budget_view
from controlplane.capacity.interface import JobCapacity
from controlplane.catalog.money import MicroDollars, micro_of, usd_text
from controlplane.job import events
from controlplane.job.state import Job
from controlplane.jobs.context import TermContext
from controlplane.jobs.errors import BudgetRefused, CostUnknown, JobUnknown, NotLeading, ScaleRefused, has_ended
from controlplane.jobs.registry import JobRegistry
from controlplane.jobs.runner import JobRunner
from controlplane.ledger.books import Books
from controlplane.ledger.records import LedgerUnreadable
from controlplane.ledger.state import Ledger
from controlplane.planning.criteria import criteria_of
from messages.budgets import BudgetView
from messages.costs import CostView

NO_FLEET = "This master has no fleet, so the cost of its machines is unknown."
BLIND = (
    "The cloud does not list its machines ({why}). The cost is as of its last list; "
    "a budget also counts what may have been spent since."
)


class Budgets:
    def __init__(self, context: TermContext, registry: JobRegistry, books: Books, capacity: JobCapacity) -> None:
        self._context = context
        self._registry = registry
        self._books = books
        self._capacity = capacity
        self._keeper = BudgetKeeper(books, context.clock, self._dearest)

    @property
    def note(self) -> str:
        """A note for every amount of money that this master shows."""
        if not self._capacity.has_fleet:
            return NO_FLEET
        why = self._books.why_blind()
        return BLIND.format(why=why) if why else ""

    async def run(self) -> None:
        """Enforces budgets until cancelled; returns at once without a fleet."""
        if self._capacity.has_fleet:
            await self._keeper.run(self._registry.jobs.values)

    async def view(self, name: str) -> BudgetView:
        """Raises `BusUnavailable` and `CostUnknown`."""
        runner = self._registry.job(name)
        ledger = await self.ledger(runner)
        at_ms = round(self._context.clock.wall_s() * 1000)
        return budget_view(runner.state, ledger, self._dearest(runner.state), at_ms, self.note, blind=self._is_blind)

    async def ledger(self, runner: JobRunner) -> Ledger:
        """Raises `BusUnavailable` and `CostUnknown`."""
        try:
            ledger = await self._books.ledger(runner.name)
        except LedgerUnreadable as error:
            raise CostUnknown(runner.name, str(error)) from error
        if ledger is None:
            raise JobUnknown(runner.name)
        return ledger

    async def raise_to(self, name: str, usd: float) -> BudgetView:
        """Raises the budget and continues a paused job at once if the budget allows it.

        Raises `BusUnavailable`, `CostUnknown` and `NotRecorded`.
        """
        runner = self._registry.job(name)
        _check(runner, usd)
        await self.ledger(runner)
        if not self._context.may_act():
            raise NotLeading
        runner.post(events.BudgetRaised(self._context.now_s(), usd))
        await runner.until_saved(lambda record: (record.max_usd_total or 0.0) >= usd)
        judged = runner.state.record
        if self._keeper.look(runner):
            await runner.until_saved(lambda record: record != judged)
        return await self.view(name)

    async def check_scale(self, runner: JobRunner, workers: int) -> None:
        """Raises `ScaleRefused` if the rest of the budget is too small, `CostUnknown` and `BusUnavailable`."""
        fewer = workers <= runner.state.record.wanted
        if not self._capacity.has_fleet or fewer or terms_of(runner.state) is None:
            return
        ledger = await self.ledger(runner)
        at_ms = round(self._context.clock.wall_s() * 1000)
        why = why_too_many(
            runner.state, workers, ledger, self._dearest(runner.state), at_ms=at_ms, blind=self._is_blind
        )
        if why is not None:
            message = f"The budget of job {runner.name!r} is too small for {workers} workers: {why}."
            raise ScaleRefused(message, f"raise it first: tradewind budget {runner.name} USD")

    def shown_with(self, cost: CostView) -> CostView:
        job = self._registry.job(cost.job).state
        terms = terms_of(job)
        total = terms.total if terms is not None else None
        return structs.replace(cost, budget_micro_usd=total, paused=job.record.paused or "")

    @property
    def _is_blind(self) -> bool:
        return bool(self._books.why_blind())

    def _dearest(self, job: Job) -> MicroDollars | None:
        return self._capacity.advisor.dearest(criteria_of(job.spec))


def _check(runner: JobRunner, usd: float) -> None:
    if runner.ended:
        raise BudgetRefused(has_ended(runner.name, runner.state.record.phase), "tradewind status")
    terms = terms_of(runner.state)
    if terms is not None and micro_of(usd) < terms.total:
        message = f"Job {runner.name!r} has a budget of {usd_text(terms.total)} USD; a budget can only be raised."
        raise BudgetRefused(message, f"to end its spending: tradewind stop {runner.name}")
