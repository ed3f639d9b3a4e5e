"""Learns from each event. The same facts in another order, or twice, give the same ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar, assert_never

from controlplane.ledger.events import ActivitiesChanged, LedgerEvent, MachinesListed, PricesChanged, StepsCommitted
from controlplane.ledger.settle import settle
from controlplane.ledger.state import Ledger, Machine, Sent

K = TypeVar("K")
V = TypeVar("V")


def learn(ledger: Ledger, event: LedgerEvent) -> Ledger:
    taught = _take_in(ledger, event)
    return settle(replace(taught, newest_ms=max(ledger.newest_ms, event.at_ms)))


def _take_in(ledger: Ledger, event: LedgerEvent) -> Ledger:
    match event:
        case MachinesListed():
            return _learn_listing(ledger, event)
        case PricesChanged(at_ms, rates):
            return replace(ledger, prices=_with_points(ledger.prices, at_ms, rates))
        case ActivitiesChanged(at_ms, activities):
            return replace(ledger, activities=_with_points(ledger.activities, at_ms, activities))
        case StepsCommitted():
            return _learn_steps(ledger, event)
        case _:
            assert_never(event)


def _learn_listing(ledger: Ledger, event: MachinesListed) -> Ledger:
    machines, ended = dict(ledger.machines), dict(ledger.ended)
    for found in event.found:
        settled_ms = ended.get(found.machine, 0)
        if settled_ms >= event.at_ms:
            # An old listing of a machine that is gone.
            continue
        ended.pop(found.machine, None)
        new = Machine(found.name, found.kind, found.started_ms, event.at_ms, settled_ms)
        machines[found.machine] = _merged(machines.get(found.machine, new), new)
    looks_ms = tuple(sorted({*ledger.looks_ms, event.at_ms}))
    return replace(ledger, machines=machines, ended=ended, looks_ms=looks_ms)


def _merged(known: Machine, new: Machine) -> Machine:
    return replace(known, started_ms=min(known.started_ms, new.started_ms), seen_ms=max(known.seen_ms, new.seen_ms))


def _learn_steps(ledger: Ledger, event: StepsCommitted) -> Ledger:
    """Add steps. Only new steps add egress: a recomputed step counts once."""
    first = event.first_step if ledger.first_step is None else min(ledger.first_step, event.first_step)
    last = event.last_step if ledger.last_step is None else max(ledger.last_step, event.last_step)
    counted = replace(ledger, first_step=first, last_step=last, samples=max(ledger.samples, event.samples))
    new = counted.steps - ledger.steps
    if new <= 0 or not event.hops:
        return counted
    egress = dict(ledger.egress)
    for hop in event.hops:
        sent, sent_bytes = egress.get((hop.sender, hop.receiver), Sent()), new * hop.bytes_per_step
        egress[hop.sender, hop.receiver] = Sent(
            sent.sent_bytes + sent_bytes, sent.cost + sent_bytes * hop.micro_usd_per_gib
        )
    return replace(counted, egress=egress)


def _with_points(
    known: Mapping[K, tuple[tuple[int, V], ...]], at_ms: int, reported: Mapping[K, V]
) -> Mapping[K, tuple[tuple[int, V], ...]]:
    return {**known, **{key: _with_point(known.get(key, ()), at_ms, value) for key, value in reported.items()}}


def _with_point(points: Iterable[tuple[int, V]], at_ms: int, value: V) -> tuple[tuple[int, V], ...]:
    """Add a point. Of two values of the same moment the larger by `repr` wins, in whatever order they came."""
    others = [point for point in points if point[0] != at_ms]
    rivals = [value, *(point[1] for point in points if point[0] == at_ms)]
    return tuple(sorted([*others, (at_ms, max(rivals, key=repr))], key=lambda point: point[0]))
