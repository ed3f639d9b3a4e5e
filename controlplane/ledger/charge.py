"""What a machine's time costs: cut where its price, its doing or the hour changes, then multiplied."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from controlplane.ledger.amounts import MS_PER_HOUR
from controlplane.ledger.state import Doing, Ledger, Line, Machine, Rate, Tally

T = TypeVar("T")

UNKNOWN = Rate(None)


class Span(NamedTuple):
    """Time of a machine that is not added up yet."""

    machine: Machine
    from_ms: int
    until_ms: int
    missed_ms: int | None
    """The first look that did not find it any more."""

    @property
    def gone(self) -> bool:
        return self.missed_ms is not None


class Charge(NamedTuple):
    line: Line
    hour: int
    tally: Tally


def spans(ledger: Ledger) -> Iterator[tuple[str, Span]]:
    """Of each machine, by its id: up to the last look that found it, and, if it is gone, half the way to the next.

    It may have gone at any time between the two looks, but not after the next one of its name came. One that came while
    this one was still seen is no heir, whatever their names.
    """
    starts_ms: dict[str, list[int]] = {}
    for machine in ledger.machines.values():
        starts_ms.setdefault(machine.name, []).append(machine.started_ms)
    for id_, machine in ledger.machines.items():
        from_ms = max(ledger.since_ms, machine.started_ms, machine.settled_ms)
        until_ms, missed_ms = machine.seen_ms, _first_after(ledger.looks_ms, machine.seen_ms)
        if missed_ms is not None:
            heirs = (at_ms for at_ms in starts_ms[machine.name] if at_ms > machine.seen_ms)
            until_ms = min(((machine.seen_ms + missed_ms) // 2, *heirs))
        yield id_, Span(machine, from_ms, until_ms, missed_ms)


def charges(ledger: Ledger, machine: Machine, from_ms: int, until_ms: int) -> Iterator[Charge]:
    if from_ms >= until_ms:
        return
    prices = ledger.prices.get(machine.kind, ())
    doings = [point for point in ledger.doings.get(machine.name, ()) if point[0] >= machine.started_ms]
    changes_ms = {at_ms for at_ms, _ in prices} | {at_ms for at_ms, _ in doings}
    hours_ms = range((from_ms // MS_PER_HOUR + 1) * MS_PER_HOUR, until_ms, MS_PER_HOUR)
    cuts_ms = {at_ms for at_ms in changes_ms if from_ms < at_ms < until_ms}.union(hours_ms)
    begin_ms = from_ms
    for end_ms in (*sorted(cuts_ms), until_ms):
        doing = _at(doings, begin_ms) or Doing.STARTING
        # Time before the first price that is known costs that price.
        rate = _at(prices, begin_ms) or (prices[0][1] if prices else UNKNOWN)
        yield Charge(Line(machine.kind, doing), begin_ms // MS_PER_HOUR, _tally(end_ms - begin_ms, rate))
        begin_ms = end_ms


def rate_now(ledger: Ledger, machine: Machine) -> Rate:
    return _at(ledger.prices.get(machine.kind, ()), ledger.newest_ms) or UNKNOWN


def _first_after(times_ms: Sequence[int], at_ms: int) -> int | None:
    place = bisect_right(times_ms, at_ms)
    return times_ms[place] if place < len(times_ms) else None


def _tally(node_ms: int, rate: Rate) -> Tally:
    if rate.paid is None:
        return Tally(node_ms, unpriced_ms=node_ms)
    on_demand = rate.paid if rate.on_demand is None else rate.on_demand
    return Tally(node_ms, node_ms * rate.paid, node_ms * on_demand)


def _at(points: Sequence[tuple[int, T]], at_ms: int) -> T | None:
    place = bisect_right(points, at_ms, key=lambda point: point[0])
    return points[place - 1][1] if place else None
