"""Adds up facts that are old enough and forgets them, so that the ledger of a long job stays small."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from controlplane.catalog.kinds import MachineKind
from controlplane.ledger.charge import charges, spans
from controlplane.ledger.state import (
    ACTIVITIES_AT_MOST,
    ENDED_AT_MOST,
    HOURS_AT_MOST,
    LATE_MS,
    PRICES_AT_MOST,
    Activity,
    Ledger,
    Line,
    Machine,
    Rate,
    Tally,
)

T = TypeVar("T")
Points = Sequence[tuple[int, T]]


class Sums(NamedTuple):
    lines: dict[Line, Tally]
    hours: dict[int, int]

    def add(self, ledger: Ledger, machine: Machine, from_ms: int, until_ms: int) -> None:
        for line, hour, tally in charges(ledger, machine, from_ms, until_ms):
            self.lines[line] = self.lines.get(line, Tally()) + tally
            self.hours[hour] = self.hours.get(hour, 0) + tally.cost


def settle(ledger: Ledger) -> Ledger:
    """The ledger with everything before `settles_ms` added up."""
    sums = Sums(dict(ledger.lines), dict(ledger.hours))
    machines: dict[str, Machine] = {}
    ended = dict(ledger.ended)
    for id_, span in spans(ledger):
        settles_ms = _settles_ms(ledger, span.machine.kind)
        is_over = span.missed_ms is not None and span.missed_ms <= settles_ms
        settled_ms = span.until_ms if is_over else min(span.machine.seen_ms, settles_ms)
        sums.add(ledger, span.machine, span.from_ms, settled_ms)
        if is_over:
            ended[id_] = span.until_ms
        else:
            machines[id_] = replace(span.machine, settled_ms=max(span.machine.settled_ms, settled_ms))
    return replace(
        ledger,
        lines=sums.lines,
        hours=dict(sorted(sums.hours.items())[-HOURS_AT_MOST:]),
        machines=machines,
        ended=dict(sorted(ended.items(), key=lambda each: (each[1], each[0]))[-ENDED_AT_MOST:]),
        looks_ms=_looks_ms(ledger, machines.values()),
        prices={kind: _prices(points, ledger.settles_ms) for kind, points in ledger.prices.items()},
        activities=_activities(ledger),
    )


def sums(ledger: Ledger) -> Sums:
    """All amounts, with the facts that are not settled yet."""
    found = Sums(dict(ledger.lines), dict(ledger.hours))
    for _, span in spans(ledger):
        found.add(ledger, span.machine, span.from_ms, span.until_ms)
    return found


def _settles_ms(ledger: Ledger, kind: MachineKind) -> int:
    """The time up to which this kind settles: `LATE_MS` earlier while no price is known for it."""
    points = ledger.prices.get(kind)
    priced = points is not None and points[0][0] <= ledger.settles_ms
    return ledger.settles_ms if priced else ledger.settles_ms - LATE_MS


def _prices(points: Points[Rate], settles_ms: int) -> tuple[tuple[int, Rate], ...]:
    """Points to keep: old ones for machines that are found late, without repetitions of the same price."""
    kept = [
        point
        for number, point in enumerate(points)
        if number == 0 or point[0] > settles_ms or point[1] != points[number - 1][1]
    ]
    return tuple(kept[-PRICES_AT_MOST:])


def _looks_ms(ledger: Ledger, machines: Iterable[Machine]) -> tuple[int, ...]:
    """Looks to keep: recent ones, the last one, and the first after each machine was last seen, which ends its cost."""
    needed = (bisect_right(ledger.looks_ms, machine.seen_ms) for machine in machines)
    kept_ms = {ledger.looks_ms[place] for place in needed if place < len(ledger.looks_ms)}.union(ledger.looks_ms[-1:])
    return tuple(at_ms for at_ms in ledger.looks_ms if at_ms >= ledger.settles_ms or at_ms in kept_ms)


def _activities(ledger: Ledger) -> Mapping[str, tuple[tuple[int, Activity], ...]]:
    """Activities of the last hour: a machine may be found late, or a look may fail, and its time settles later."""
    there = {machine.name for machine in ledger.machines.values()}
    since_ms = ledger.settles_ms - LATE_MS
    return {
        name: _from(points, since_ms)[-ACTIVITIES_AT_MOST:]
        for name, points in ledger.activities.items()
        if name in there or points[-1][0] >= since_ms
    }


def _from(points: Points[T], at_ms: int) -> tuple[tuple[int, T], ...]:
    """The point that applies at that time, and all later ones."""
    before = [point for point in points if point[0] <= at_ms][-1:]
    return (*before, *(point for point in points if point[0] > at_ms))
