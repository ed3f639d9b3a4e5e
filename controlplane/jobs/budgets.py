"""The budgets of a master's jobs: kept, shown, and raised by people."""

from typing import TYPE_CHECKING

from msgspec import structs

from controlplane.budget.keeper import BudgetKeeper, why_too_many
from controlplane.budget.terms import terms_of
from controlplane.budget.views import budget_view
from controlplane.catalog.money import MicroDollars, micro_of, usd_text
from controlplane.job import events
from controlplane.job.state import Job
from controlplane.jobs.errors import BudgetRefused, CostUnknown, JobUnknown, NotLeading, ScaleRefused
from controlplane.jobs.runner import HeldJob
from controlplane.ledger.records import LedgerUnreadable
from controlplane.ledger.state import Ledger
from controlplane.planning.criteria import criteria_of
from messages.budgets import BudgetView
from messages.costs import CostView

if TYPE_CHECKING:
    from controlplane.master.master import Master

NO_FLEET = "This master has no fleet: nobody knows what its workers' machines cost."
BLIND = (
    "The cloud does not list its machines ({why}): this is what was spent when it last did. "
    "A budget also counts what may have been spent since."
)


class Budgets:
    def __init__(self, master: "Master") -> None:
        self._master = master
        self._keeper = BudgetKeeper(master.books, master.clock, self._dearest)

    @property
    def note(self) -> str:
        """What belongs to every figure of money that this master tells."""
        if self._master.capacity is None:
            return NO_FLEET
        why = self._master.books.why_blind()
        return BLIND.format(why=why) if why else ""

    async def run(self) -> None:
        """Until cancelled; where there is no fleet, there is nothing to keep."""
        if self._master.capacity is not None:
            await self._keeper.run(self._master.jobs.values)

    async def view(self, name: str) -> BudgetView:
        """Raises `BusUnavailable` and `CostUnknown`."""
        held = self._master.job(name)
        ledger = await self.ledger(held)
        at_ms = round(self._master.clock.wall_s() * 1000)
        return budget_view(held.state, ledger, self._dearest(held.state), at_ms, self.note, blind=self._is_blind)

    async def ledger(self, held: HeldJob) -> Ledger:
        """Raises `BusUnavailable` and `CostUnknown`."""
        try:
            ledger = await self._master.books.ledger(held.name)
        except LedgerUnreadable as error:
            raise CostUnknown(held.name, str(error)) from error
        if ledger is None:
            raise JobUnknown(held.name)
        return ledger

    async def raise_to(self, name: str, usd: float) -> BudgetView:
        """Raises `BusUnavailable`, `CostUnknown` and `NotRecorded`. A paused job that may go on is told so at once."""
        held = self._master.job(name)
        _check(held, usd)
        await self.ledger(held)
        if not self._master.may_act():
            raise NotLeading
        held.post(events.BudgetRaised(self._master.clock.monotonic_s(), usd))
        await held.until_saved(lambda record: (record.max_usd_total or 0.0) >= usd)
        judged = held.state.record
        if self._keeper.look(held):
            await held.until_saved(lambda record: record != judged)
        return await self.view(name)

    async def check_scale(self, held: HeldJob, workers: int) -> None:
        """Raises `ScaleRefused` where what is left does not keep so many, `CostUnknown` and `BusUnavailable`."""
        fewer = workers <= held.state.record.wanted
        if self._master.capacity is None or fewer or terms_of(held.state) is None:
            return
        ledger = await self.ledger(held)
        at_ms = round(self._master.clock.wall_s() * 1000)
        why = why_too_many(held.state, workers, ledger, self._dearest(held.state), at_ms=at_ms, blind=self._is_blind)
        if why is not None:
            sentence = f"Job {held.name!r} has too little money left for {workers} workers: {why}."
            raise ScaleRefused(sentence, f"tradewind budget {held.name} USD, to raise it first")

    def shown_with(self, cost: CostView) -> CostView:
        job = self._master.job(cost.job).state
        terms = terms_of(job)
        total = terms.total if terms is not None else None
        return structs.replace(cost, budget_micro_usd=total, paused=job.record.paused or "")

    @property
    def _is_blind(self) -> bool:
        return bool(self._master.books.why_blind())

    def _dearest(self, job: Job) -> MicroDollars | None:
        planning = self._master.planning
        return planning.dearest(criteria_of(job.spec)) if planning is not None else None


def _check(held: HeldJob, usd: float) -> None:
    if held.ended:
        raise BudgetRefused(f"Job {held.name!r} has {held.state.record.phase}.", "tradewind status")
    terms = terms_of(held.state)
    if terms is not None and micro_of(usd) < terms.total:
        sentence = f"Job {held.name!r} may spend {usd_text(terms.total)} USD already; a budget can only be raised."
        raise BudgetRefused(sentence, f"tradewind stop {held.name}, to end what it spends")
