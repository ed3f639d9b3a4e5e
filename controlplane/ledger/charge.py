"""The cost of a machine's time, split where its price, its activity or the hour of the clock changes."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from controlplane.ledger.amounts import MS_PER_HOUR
from controlplane.ledger.state import Activity, Ledger, Line, Machine, Rate, Tally

T = TypeVar("T")

UNKNOWN = Rate(None)


class Span(NamedTuple):
    """Time of a machine that is not settled yet."""

    machine: Machine
    from_ms: int
    until_ms: int
    missed_ms: int | None
    """Time of the first listing after `seen_ms`, which no longer has the machine; None: the newest listing has it."""

    @property
    def gone(self) -> bool:
        return self.missed_ms is not None


class Charge(NamedTuple):
    line: Line
    hour: int
    tally: Tally


def spans(ledger: Ledger) -> Iterator[tuple[str, Span]]:
    """Yields the unsettled span of each machine with its id.

    The span ends at the newest listing that has the machine. If a later listing lacks it, the machine ended at an
    unknown time between the two. The middle counts, or the start of the next machine of its name if that is earlier. A
    machine that started while this one was still listed does not limit it.
    """
    starts_ms: dict[str, list[int]] = {}
    for machine in ledger.machines.values():
        starts_ms.setdefault(machine.name, []).append(machine.started_ms)
    for id_, machine in ledger.machines.items():
        from_ms = max(ledger.since_ms, machine.started_ms, machine.settled_ms)
        until_ms, missed_ms = machine.seen_ms, _first_after(ledger.looks_ms, machine.seen_ms)
        if missed_ms is not None:
            next_starts_ms = (at_ms for at_ms in starts_ms[machine.name] if at_ms > machine.seen_ms)
            until_ms = min(((machine.seen_ms + missed_ms) // 2, *next_starts_ms))
        yield id_, Span(machine, from_ms, until_ms, missed_ms)


def charges(ledger: Ledger, machine: Machine, from_ms: int, until_ms: int) -> Iterator[Charge]:
    """Yields the cost of a span, split at each change of price, activity or hour. Time without a price is unpriced."""
    if from_ms >= until_ms:
        return
    prices = ledger.prices.get(machine.kind, ())
    activities = [point for point in ledger.activities.get(machine.name, ()) if point[0] >= machine.started_ms]
    changes_ms = {at_ms for at_ms, _ in prices} | {at_ms for at_ms, _ in activities}
    hours_ms = range((from_ms // MS_PER_HOUR + 1) * MS_PER_HOUR, until_ms, MS_PER_HOUR)
    cuts_ms = {at_ms for at_ms in changes_ms if from_ms < at_ms < until_ms}.union(hours_ms)
    begin_ms = from_ms
    for end_ms in (*sorted(cuts_ms), until_ms):
        activity = _at(activities, begin_ms) or Activity.STARTING
        # Time before the first known price costs that price.
        rate = _at(prices, begin_ms) or (prices[0][1] if prices else UNKNOWN)
        yield Charge(Line(machine.kind, activity), begin_ms // MS_PER_HOUR, _tally(end_ms - begin_ms, rate))
        begin_ms = end_ms


def rate_now(ledger: Ledger, machine: Machine) -> Rate:
    """The price of the machine at the newest known time."""
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
