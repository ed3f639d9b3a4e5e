"""The stored form of a ledger: one key `ledger.<job>`, written by the leader, read by the next leader.

Amounts may exceed the integers that JSON readers keep exact: they are written as whole micro-dollars and a remainder.
An invalid record is refused: a wrong amount is worse than none.
"""

from typing import Annotated

from msgspec import Meta, Struct

from controlplane.catalog.accelerators import canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.links import BYTES_PER_GIB
from controlplane.ledger.amounts import MS_PER_HOUR
from controlplane.ledger.state import Activity, Ledger, Line, Machine, Rate, Sent, Tally
from messages.decoding import Undecodable, decode, encode_readable
from messages.ids import Epoch, JobName
from runtime.errors import Permanent

VERSION = 1

Whole = Annotated[int, Meta(ge=0)]
Amount = tuple[Whole, Whole]
"""Whole micro-dollars, and the remainder."""
KindIndex = Annotated[int, Meta(ge=0)]


class LedgerUnreadable(Permanent):
    """The stored ledger is not in the format that a master writes."""


class LineRow(Struct, frozen=True, array_like=True):
    kind: KindIndex
    activity: Activity
    node_ms: Whole
    cost: Amount
    on_demand_cost: Amount
    unpriced_ms: Whole


class MachineRow(Struct, frozen=True, array_like=True):
    id: str
    name: str
    kind: KindIndex
    started_ms: int
    seen_ms: int
    settled_ms: int


class LedgerRecord(Struct, frozen=True):
    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    job: str
    since_ms: int
    epoch: Epoch
    """Epoch of the master that wrote it."""
    newest_ms: int
    kinds: tuple[MachineKind, ...]
    lines: tuple[LineRow, ...]
    hours: tuple[tuple[int, Amount], ...]
    egress: tuple[tuple[str, str, Whole, Amount], ...]
    first_step: int | None
    last_step: int | None
    samples: Whole
    machines: tuple[MachineRow, ...]
    ended: dict[str, int]
    looks_ms: tuple[int, ...]
    prices: tuple[tuple[KindIndex, tuple[tuple[int, Rate], ...]], ...]
    activities: dict[str, tuple[tuple[int, Activity], ...]]


def encode_ledger(ledger: Ledger, epoch: Epoch) -> bytes:
    """Encode the ledger; raises `NotStorable`."""
    lines = ledger.lines.items()
    used = {*(line.kind for line in ledger.lines), *(each.kind for each in ledger.machines.values()), *ledger.prices}
    kinds = sorted(used)
    index = {kind: number for number, kind in enumerate(kinds)}
    record = LedgerRecord(
        version=VERSION,
        job=ledger.job,
        since_ms=ledger.since_ms,
        epoch=epoch,
        newest_ms=ledger.newest_ms,
        kinds=tuple(kinds),
        lines=tuple(_line_row(index[line.kind], line.activity, tally) for line, tally in lines),
        hours=tuple((hour, _amount(cost, MS_PER_HOUR)) for hour, cost in ledger.hours.items()),
        egress=tuple(
            (*pair, sent.sent_bytes, _amount(sent.cost, BYTES_PER_GIB)) for pair, sent in ledger.egress.items()
        ),
        first_step=ledger.first_step,
        last_step=ledger.last_step,
        samples=ledger.samples,
        machines=tuple(_machine_row(id_, index[each.kind], each) for id_, each in ledger.machines.items()),
        ended=dict(ledger.ended),
        looks_ms=ledger.looks_ms,
        prices=tuple((index[kind], points) for kind, points in ledger.prices.items()),
        activities=dict(ledger.activities),
    )
    return encode_readable(record, LedgerRecord)


def decode_ledger(job: JobName, value: bytes) -> tuple[Ledger, Epoch]:
    """Return the ledger, and the epoch of its writer; raises `LedgerUnreadable`."""
    try:
        record = decode(value, LedgerRecord)
    except Undecodable as error:
        raise LedgerUnreadable(str(error)) from error
    try:
        return _ledger(job, record), record.epoch
    except IndexError:
        raise LedgerUnreadable("it refers to a kind of machine that it does not list") from None


def _ledger(job: JobName, record: LedgerRecord) -> Ledger:
    kinds = [kind._replace(accelerator=canonical(kind.accelerator)) for kind in record.kinds]
    lines: dict[Line, Tally] = {}
    for row in record.lines:
        line = Line(kinds[row.kind], row.activity)
        lines[line] = lines.get(line, Tally()) + _tally(row)
    prices: dict[MachineKind, tuple[tuple[int, Rate], ...]] = {}
    for number, points in record.prices:
        prices[kinds[number]] = tuple(sorted({*prices.get(kinds[number], ()), *points}, key=lambda point: point[0]))
    return Ledger(
        job=job,
        since_ms=record.since_ms,
        lines=lines,
        hours={hour: _whole(cost, MS_PER_HOUR) for hour, cost in record.hours},
        egress={
            (sender, receiver): Sent(sent_bytes, _whole(cost, BYTES_PER_GIB))
            for sender, receiver, sent_bytes, cost in record.egress
        },
        first_step=record.first_step,
        last_step=record.last_step,
        samples=record.samples,
        machines={
            row.id: Machine(row.name, kinds[row.kind], row.started_ms, row.seen_ms, row.settled_ms)
            for row in record.machines
        },
        ended=record.ended,
        looks_ms=record.looks_ms,
        prices=prices,
        activities=record.activities,
        newest_ms=record.newest_ms,
    )


def _line_row(kind: int, activity: Activity, tally: Tally) -> LineRow:
    cost, on_demand = _amount(tally.cost, MS_PER_HOUR), _amount(tally.on_demand_cost, MS_PER_HOUR)
    return LineRow(kind, activity, tally.node_ms, cost, on_demand, tally.unpriced_ms)


def _tally(row: LineRow) -> Tally:
    cost, on_demand = _whole(row.cost, MS_PER_HOUR), _whole(row.on_demand_cost, MS_PER_HOUR)
    return Tally(row.node_ms, cost, on_demand, row.unpriced_ms)


def _machine_row(id_: str, kind: int, machine: Machine) -> MachineRow:
    return MachineRow(id_, machine.name, kind, machine.started_ms, machine.seen_ms, machine.settled_ms)


def _amount(cost: int, unit: int) -> Amount:
    return divmod(cost, unit)


def _whole(amount: Amount, unit: int) -> int:
    return amount[0] * unit + amount[1]
