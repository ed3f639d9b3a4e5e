"""Machines, and the events that a master gets of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.ledger.amounts import MS_PER_HOUR
from controlplane.ledger.events import Found, LedgerEvent, MachinesListed
from controlplane.ledger.learn import learn
from controlplane.ledger.settle import sums
from controlplane.ledger.state import Ledger, Rate, Tally, new_ledger
from messages.ids import JobName

JOB = JobName("a-job")
BEGIN_MS = 1_800_000_000_000 // MS_PER_HOUR * MS_PER_HOUR + MS_PER_HOUR // 2
L4 = MachineKind("us-central1-a", "g2-standard-8", "L4", 1, True)
A100 = MachineKind("europe-west4-a", "a2-highgpu-1g", "A100-40", 1, False)


@dataclass(frozen=True)
class Life:
    machine: str
    name: str
    kind: MachineKind
    started_ms: int
    ended_ms: int

    @property
    def found(self) -> Found:
        return Found(self.machine, self.name, self.kind, self.started_ms)


def a_life(
    machine: str = "1", *, kind: MachineKind = L4, name: str = "", started_s: float = 0, lived_s: float = 3600
) -> Life:
    started_ms = at(started_s)
    return Life(machine, name or f"node-{machine}", kind, started_ms, started_ms + round(lived_s * 1000))


def a_look(at_ms: int, lives: Sequence[Life]) -> MachinesListed:
    return MachinesListed(at_ms, tuple(life.found for life in lives if life.started_ms <= at_ms < life.ended_ms))


def looks(lives: Sequence[Life], every_s: float, until_s: float) -> list[LedgerEvent]:
    times = range(BEGIN_MS, at(until_s) + 1, round(every_s * 1000))
    return [a_look(at_ms, lives) for at_ms in times]


def a_ledger(*events: LedgerEvent, since_s: float = 0) -> Ledger:
    return reduce(learn, events, new_ledger(JOB, at(since_s)))


def a_rate(usd_per_hour: float, on_demand: float | None = None) -> Rate:
    return Rate(_micro(usd_per_hour), None if on_demand is None else _micro(on_demand))


def at(seconds: float) -> int:
    return BEGIN_MS + round(seconds * 1000)


def total(ledger: Ledger) -> Tally:
    return sum(sums(ledger).lines.values(), Tally())


def _micro(usd: float) -> MicroDollars:
    return MicroDollars(round(usd * 1_000_000))
