"""Jobs with budgets, and their spending."""

import re
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from controlplane.catalog.money import MICRO_PER_USD, MicroDollars
from controlplane.job.events import JobEvent
from controlplane.job.learn import learn
from controlplane.job.state import Job, new_job
from controlplane.ledger.events import LedgerEvent, PricesChanged
from controlplane.ledger.state import Ledger
from messages.criteria import WhenSpent
from messages.ids import Epoch
from tests.ledger.builders import JOB, L4, a_ledger, a_life, a_rate, at, looks
from tests.specs import a_planned_spec


def a_job(usd: float | None = 10.0, *, workers: int = 1, when_spent: WhenSpent | None = None, **capacity: Any) -> Job:
    spec = a_planned_spec(JOB, workers, least=1, max_usd_total=usd, when_spent=when_spent, on_demand=0.5, **capacity)
    return new_job(spec, epoch=Epoch(1), at_s=0.0, submitted_at=0.0)


def figures(text: str) -> list[str]:
    """The numbers of a message, in order."""
    return re.findall(r"\d+(?:\.\d+)?", text)


def recorded(job: Job, **changes: Any) -> Job:
    return replace(job, record=replace(job.record, **changes))


def spending(usd_per_hour: float, hours: float, *, on_demand: float | None = None, gone: bool = False) -> Ledger:
    """One machine, seen every minute until then."""
    life = a_life(lived_s=hours * 3600 - 30 if gone else hours * 3600 + 30)
    price: LedgerEvent = PricesChanged(at(0), {L4: a_rate(usd_per_hour, on_demand)})
    return a_ledger(price, *looks([life], 60, hours * 3600))


def usd(amount: float) -> MicroDollars:
    return MicroDollars(round(amount * MICRO_PER_USD))


@dataclass
class Holder:
    """A job as a master keeps it, without the master."""

    state: Job
    reported: list[JobEvent] = field(default_factory=list)

    longest_step_s: float = 0.0

    def post(self, event: JobEvent) -> None:
        self.reported.append(event)
        self.state = learn(self.state, event)
