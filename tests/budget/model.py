"""A model of a master that keeps a job within its budget, in a cloud where prices change and machines end slowly.

Ledger, verdicts and the job's core are the production code; cloud and allocator are simple models. The model adds up
the true bill by itself and compares it with the budget after each tick.
"""

from dataclasses import dataclass, field
from itertools import count
from random import Random

from controlplane.budget.account import RELEASE_S
from controlplane.budget.decide import decide
from controlplane.budget.events import SpendingSeen
from controlplane.budget.keeper import PERIOD_S
from controlplane.capacity.observer import EVERY_S
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.job.events import BudgetFreed, BudgetRaised, BudgetReached
from controlplane.job.learn import learn
from controlplane.job.state import Job, adopted_job, new_job
from controlplane.ledger.book import Book
from controlplane.ledger.books import BLIND_S, SAVE_S
from controlplane.ledger.events import Found
from controlplane.ledger.records import decode_ledger, encode_ledger
from controlplane.ledger.spending import spent
from controlplane.ledger.state import Ledger, Rate, new_ledger
from messages.criteria import WhenSpent
from messages.ids import Epoch, JobName
from tests.specs import a_planned_spec

JOB = JobName("a-job")
TICK_MS = 500
MS_PER_HOUR = 3_600_000
BEGIN_MS = 1_800_000_000_000
LASTS_S = 900
END_S = 10.0
"""Maximum seconds until the workers of a removed machine have ended."""
AWAY_S = 20.0
"""Maximum seconds without a master after a crash."""
DELETE_S = 80.0
"""Maximum seconds to delete a machine. With `END_S` and `AWAY_S` less than `RELEASE_S`, the time of the reserve."""
UNSEEN_S = 600.0
"""Maximum seconds of a period in which all looks fail; only odd seeds have them. Single looks fail with every seed."""


class Overspent(AssertionError):
    """The bill exceeds what the budget allows."""


@dataclass
class Offer:
    """Machines of one kind and their prices, in micro-dollars an hour."""

    kind: MachineKind
    on_demand: int
    paid: int
    """The current price: spot or on demand, as `kind` says."""


@dataclass
class Machine:
    name: str
    offer: Offer
    starts_ms: int
    ends_ms: int | None = None
    """When the machine stops costing money; None until that is known."""
    removal_requested: bool = False

    def costs_at(self, at_ms: int) -> bool:
        return self.starts_ms <= at_ms and (self.ends_ms is None or at_ms < self.ends_ms)


@dataclass
class Model:
    seed: int
    now_ms: int = BEGIN_MS
    machines: list[Machine] = field(default_factory=list)
    pauses: int = 0
    """How often the job was paused."""
    continued: int = 0
    """How often the job continued after a pause."""
    revoked: int = 0
    """Reports that the budget is free again although it was not raised since it was reached."""
    restarts: int = 0
    blind_periods: int = 0
    """Periods without a successful look that are longer than `AWAY_S + BLIND_S`."""
    missed: float = 0.0
    """Micro-dollars by which the bill exceeds the ledger after a blind period, at most.

    For example the cost of machines that started and ended between two looks, which the ledger never learns."""
    bill_units: int = 0
    """The bill in micro-dollars an hour × milliseconds."""

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self._names = count(1)
        self.offers = [offer for number in range(self.chance.randint(1, 3)) for offer in self._some_offers(number)]
        self.dearest = max(offer.on_demand for offer in self.offers)
        wanted = self.chance.randint(1, 6)
        lasts_s = self.chance.uniform(10, 200)
        usd = wanted * self.dearest * (RELEASE_S + lasts_s) / 3600 / 1_000_000
        when_spent = self.chance.choice(list(WhenSpent))
        spec = a_planned_spec(JOB, wanted, least=1, max_usd_total=usd, when_spent=when_spent, on_demand=0.5)
        self.job: Job = new_job(spec, epoch=Epoch(1), at_s=0.0, submitted_at=BEGIN_MS / 1000)
        self.book = Book(JOB, BEGIN_MS, new_ledger(JOB, BEGIN_MS))
        self._saved = encode_ledger(new_ledger(JOB, BEGIN_MS), Epoch(1))
        self._looked_ms = BEGIN_MS
        self._due_ms = dict.fromkeys(("look", "save", "judge", "raise"), BEGIN_MS)
        self._away_until_ms = BEGIN_MS
        self._unseen_until_ms = BEGIN_MS
        self._seen_ms = BEGIN_MS
        """When a look of the current master last succeeded; its start if none has."""
        self._total_when_reached = 0.0
        """The budget, in micro-dollars, when it was last reported as reached."""

    @property
    def total(self) -> float:
        """The budget in micro-dollars."""
        capacity = self.job.spec.capacity
        assert capacity is not None and capacity.max_usd_total is not None
        return 1_000_000 * (self.job.record.max_usd_total or capacity.max_usd_total)

    @property
    def bill(self) -> float:
        """What the job's machines have cost, in micro-dollars."""
        return self.bill_units / MS_PER_HOUR

    def run(self) -> None:
        while self.now_ms < BEGIN_MS + LASTS_S * 1000:
            self._change_prices()
            self._preempt_machines()
            if self.now_ms >= self._away_until_ms:
                self._run_master()
            self._add_to_bill()
            self._check_bill()

    # The cloud

    def _some_offers(self, number: int) -> list[Offer]:
        on_demand = self.chance.randint(500_000, 8_000_000)
        spot = round(on_demand * self.chance.uniform(0.2, 1.0))
        kinds = [(True, spot)] + ([(False, on_demand)] if self.chance.random() < 0.5 else [])
        return [
            Offer(MachineKind("zone-a", f"machine-{number}", "gpu", 1, is_spot), on_demand, paid)
            for is_spot, paid in kinds
        ]

    def _change_prices(self) -> None:
        for offer in self.offers:
            if offer.kind.spot and self._happens(every_s=60):
                offer.paid = round(offer.on_demand * self.chance.uniform(0.2, 1.0))

    def _preempt_machines(self) -> None:
        for machine in self._machines_paid_for():
            if machine.offer.kind.spot and machine.ends_ms is None and self._happens(every_s=120):
                machine.ends_ms = self.now_ms

    def _machines_paid_for(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.costs_at(self.now_ms)]

    def _add_to_bill(self) -> None:
        self.bill_units += sum(machine.offer.paid for machine in self._machines_paid_for()) * TICK_MS
        self.now_ms += TICK_MS

    def _check_bill(self) -> None:
        """Fails if the bill exceeds the budget by more than one control period and what the ledger missed."""
        period = sum(machine.offer.paid for machine in self._machines_paid_for()) * PERIOD_S / 3600
        if self.bill > self.total + period + self.missed:
            raise Overspent(
                f"seed {self.seed}: billed {self.bill:.0f}, budget {self.total:.0f} after {self._passed_s:.0f} s"
            )

    # The master

    def _run_master(self) -> None:
        if self._happens(every_s=100):
            self._crash()
            return
        if self.seed % 2 and (self.now_ms == BEGIN_MS or self._happens(every_s=300)):
            self._unseen_until_ms = self.now_ms + self._ms(1.0, UNSEEN_S)
        if self._is_due("look", EVERY_S) and self.now_ms >= self._unseen_until_ms and not self._happens(every_s=5):
            self._look()
        if self._is_due("save", SAVE_S):
            self._saved = encode_ledger(self._ledger, Epoch(1))
        if self._is_due("judge", PERIOD_S):
            self._judge()
        self._adjust_machines()
        self._raise_budget()

    def _crash(self) -> None:
        self.restarts += 1
        self._away_until_ms = self._seen_ms = self.now_ms + self._ms(0.5, AWAY_S)
        ledger, _ = decode_ledger(JOB, self._saved)
        self.book = Book(JOB, BEGIN_MS, ledger)
        self.job = adopted_job(self.job.spec, self.job.record, epoch=Epoch(1), at_s=self._passed_s)

    def _look(self) -> None:
        unseen_ms = self.now_ms - self._looked_ms
        self._see()
        if unseen_ms > (AWAY_S + BLIND_S) * 1000:
            self.blind_periods += 1
            self.missed = max(self.missed, self.bill - spent(self._ledger))
        self._seen_ms = self.now_ms

    @property
    def _is_blind(self) -> bool:
        return self.now_ms - self._seen_ms > BLIND_S * 1000

    @property
    def _ledger(self) -> Ledger:
        ledger = self.book.current()
        assert ledger is not None
        return ledger

    def _see(self) -> None:
        found = tuple(
            Found(each.name, each.name, each.offer.kind, each.starts_ms) for each in self._machines_paid_for()
        )
        rates = {offer.kind: Rate(MicroDollars(offer.paid), MicroDollars(offer.on_demand)) for offer in self.offers}
        reported = {each.kind: rates[each.kind] for each in found}
        self.book.see(self.now_ms, found, reported, (self.now_ms + self._looked_ms) // 2)
        self._looked_ms = self.now_ms

    def _judge(self) -> None:
        before, dearest = self.job.record, MicroDollars(self.dearest)
        seen = SpendingSeen(self._passed_s, self.now_ms, self.job, self._ledger, blind=self._is_blind, dearest=dearest)
        reported = decide(seen).reported
        if reported is not None:
            self.job = learn(self.job, reported)
        if isinstance(reported, BudgetReached):
            self._total_when_reached = self.total
        if isinstance(reported, BudgetFreed):
            self.revoked += self.total == self._total_when_reached
        self.pauses += before.paused is None and self.job.record.paused is not None
        self.continued += before.paused is not None and self.job.record.paused is None

    def _adjust_machines(self) -> None:
        """Removes machines that the job may not have, and requests missing ones, which always start."""
        record = self.job.record
        if record.paused is not None or record.stop_why is not None:
            self._remove(self.machines)
            return
        if record.spot_only is not None:
            self._remove([machine for machine in self.machines if not machine.offer.kind.spot])
        alive = [
            each
            for each in self.machines
            if not each.removal_requested and (each.ends_ms is None or each.ends_ms > self.now_ms)
        ]
        allowed = [offer for offer in self.offers if offer.kind.spot or record.spot_only is None]
        for _ in range(record.wanted - len(alive)):
            starts_ms = self.now_ms + self._ms(1.0, 20.0)
            self.machines.append(Machine(f"m{next(self._names)}", self.chance.choice(allowed), starts_ms))

    def _remove(self, machines: list[Machine]) -> None:
        for machine in machines:
            if not machine.removal_requested and machine.ends_ms is None:
                machine.removal_requested = True
                begin_ms = max(self.now_ms, machine.starts_ms)
                machine.ends_ms = begin_ms + self._ms(0.0, END_S) + self._ms(1.0, DELETE_S)

    def _raise_budget(self) -> None:
        if self.job.record.paused is None or self._machines_paid_for() or not self._is_due("raise", 20.0):
            return
        reserve = self.job.record.wanted * self.dearest * RELEASE_S / 3600
        more = self.chance.choice((0.01, 0.3, 1.5, 3.0)) * reserve
        self.job = learn(self.job, BudgetRaised(self._passed_s, round((self.total + more) / 1_000_000, 6)))

    # Chance and time

    @property
    def _passed_s(self) -> float:
        return (self.now_ms - BEGIN_MS) / 1000

    def _happens(self, *, every_s: float) -> bool:
        return self.chance.random() < TICK_MS / 1000 / every_s

    def _ms(self, least_s: float, most_s: float) -> int:
        return TICK_MS * round(self.chance.uniform(least_s, most_s) * 1000 / TICK_MS)

    def _is_due(self, what: str, every_s: float) -> bool:
        if self.now_ms < self._due_ms[what]:
            return False
        self._due_ms[what] = self.now_ms + round(every_s * 1000)
        return True
