"""The ledger and the budget of the job in one term of a master.

Each second the term lists the machines that cost money and checks the budget; every few seconds it stores the ledger. A
new term reads the stored ledger and derives what it missed from the start time of each machine.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from controlplane.budget.decide import decide
from controlplane.budget.events import SpendingSeen
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.clouds.interface import MachineInfo
from controlplane.job.state import Job
from controlplane.ledger.book import Book
from controlplane.ledger.events import Found
from controlplane.ledger.state import Rate
from runtime.bus import Bucket
from runtime.errors import Conflict
from simulator.cloud.model.spot import price_of
from simulator.market.markets import ACCELERATORS as PRICES
from simulator.market.markets import Market as Place
from tests.simulation.cloud import ACCELERATORS
from tests.simulation.market import Market

if TYPE_CHECKING:
    from tests.simulation.masters import Term

PERIOD_S = 1.0
SAVE_S = 5.0
BLIND_S = 10.0


@dataclass(frozen=True, slots=True)
class Entry:
    value: bytes
    revision: int


class LedgerKey:
    """The stored ledger, with the interface that a book expects."""

    def __init__(self) -> None:
        self._entry: Entry | None = None

    async def get(self, key: str) -> Entry | None:
        return self._entry

    async def update(self, key: str, value: bytes, revision: int) -> int:
        expected = self._entry.revision if self._entry is not None else 0
        if revision != expected:
            raise Conflict(key)
        self._entry = Entry(value, expected + 1)
        return expected + 1


class Money:
    def __init__(self, term: "Term", job: Job, market: Market, key: LedgerKey) -> None:
        self._term = term
        self._market = market
        self._key = cast(Bucket, key)
        self._book = Book(job.name, round(job.record.submitted_at * 1000))
        self._looked_ms = self._now_ms
        self._seen_s = term.now_s
        self._saved_s = term.now_s
        _at_once(self._book.read(self._key))
        term.later(0.01, self._look)

    @property
    def _now_ms(self) -> int:
        return round(self._term.system.clockwork.now_s * 1000)

    def _look(self) -> None:
        clockwork = self._term.system.clockwork
        self._term.later(PERIOD_S, self._look)
        if not clockwork.happens(0.1, "machines not listed"):
            self._see(self._market.cloud.machines())
        if self._term.now_s - self._saved_s >= SAVE_S and self._term.process.leads and self._term.connected:
            self._saved_s = self._term.now_s
            _at_once(self._book.save(self._key, self._term.epoch))
        self._judge()

    def _see(self, machines: tuple[MachineInfo, ...]) -> None:
        found = tuple(map(_found, machines))
        rates = {each.kind: self._rate(each.kind) for each in found}
        now_ms = self._now_ms
        self._book.see(now_ms, found, rates, (now_ms + self._looked_ms) // 2)
        self._looked_ms, self._seen_s = now_ms, self._term.now_s

    def _rate(self, kind: MachineKind) -> Rate:
        name, count = ACCELERATORS[kind.accelerator], kind.accelerators
        on_demand = MicroDollars(PRICES[name].on_demand * count)
        spot = price_of(self._market.cloud.state, Place(kind.zone, name)) * count
        return Rate(MicroDollars(spot) if kind.spot else on_demand, on_demand)

    def _judge(self) -> None:
        job, ledger, now_s = self._term.job, self._book.current(), self._term.now_s
        if job is None or ledger is None:
            return
        blind, dearest = now_s - self._seen_s > BLIND_S, self._market.dearest()
        seen = SpendingSeen(now_s, self._now_ms, job, ledger, blind=blind, dearest=dearest)
        reported = decide(seen).reported
        if reported is not None:
            self._term.post(reported)


def _found(machine: MachineInfo) -> Found:
    return Found(machine.id, machine.name, machine.kind, round(machine.started_at * 1000))


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
