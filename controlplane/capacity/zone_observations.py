"""Observations about zones from an allocator's states: machines that started, were refused, ran and were preempted.

A watch has the part of a job's last state that is needed to find changes in the next.
Only spot machines count, because on-demand machines are neither refused nor preempted in the same way. A machine in
a silent cluster does not count as preempted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controlplane.allocator import state
from controlplane.allocator.availability import newly_closed
from controlplane.allocator.counting import is_dismissed, is_sidelined
from controlplane.allocator.state import Allocator, Kind, Pool, Shortage
from controlplane.catalog.accelerators import BY_NAME
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.memory import AvailabilityKey, Granted, Lived, Observation, QuotaRefused, StockedOut, Taken
from controlplane.clouds.interface import PoolRef

LIVED_EVERY_S = 600.0
"""Seconds between two observations of the same running machine, so that its lifetime counts before it ends."""

NodeKey = tuple[PoolRef, str]


@dataclass(frozen=True, slots=True)
class Alive:
    uid: str
    availability_key: AvailabilityKey
    counted_s: float
    """Monotonic seconds up to which its lifetime was observed."""


@dataclass(frozen=True, slots=True)
class Watch:
    alive: Mapping[NodeKey, Alive] = field(default_factory=dict)
    asked_s: Mapping[PoolRef, float] = field(default_factory=dict)
    """Monotonic seconds of each pool's last request for more nodes since the watch began."""
    sighted: frozenset[PoolRef] = frozenset()
    availability: Mapping[MachineKind, state.Availability] = field(default_factory=dict)
    given_back: frozenset[NodeKey] = frozenset()
    """Nodes that the allocator was removing."""


def observe(watch: Watch, allocator: Allocator, now_s: float, at: float) -> tuple[Watch, tuple[Observation, ...]]:
    """Observations since the last state. `now_s` is on the allocator's clock; `at` is the same time in Unix seconds."""
    asked_s = _asked_s(watch, allocator)
    alive = _alive(allocator)
    seen: list[Observation] = [*_refusals(watch, allocator, at)]
    found: dict[NodeKey, Alive] = {}
    for key, (uid, availability_key) in alive.items():
        known = watch.alive.get(key)
        if known is None or _is_other(known.uid, uid):
            found[key] = Alive(uid, availability_key, now_s)
            if _is_unlisted(watch, allocator.pools[key[0]]):
                seen.append(Granted(*availability_key, at, _boot_s(asked_s.get(key[0]), now_s)))
        else:
            counted_s = now_s if now_s - known.counted_s >= LIVED_EVERY_S else known.counted_s
            found[key] = Alive(uid or known.uid, availability_key, counted_s)
            if counted_s > known.counted_s:
                seen.append(Lived(*availability_key, at, counted_s - known.counted_s))
    for key, known in watch.alive.items():
        now = found.get(key)
        if now is None or _is_other(known.uid, now.uid):
            ended = Taken if _was_taken(watch, allocator, key) else Lived
            seen.append(ended(*known.availability_key, at, max(0.0, now_s - known.counted_s)))
    sighted = {ref for ref, pool in allocator.pools.items() if pool.sighted_s is not None}
    given_back = frozenset(key for key in found if _is_removed(allocator.pools[key[0]], key[1]))
    return Watch(found, asked_s, watch.sighted | sighted, allocator.availability, given_back), tuple(seen)


def _alive(allocator: Allocator) -> dict[NodeKey, tuple[str, AvailabilityKey]]:
    return {
        (ref, node.name): (node.uid, availability_key)
        for ref, pool in allocator.pools.items()
        if (availability_key := _availability_key(pool.offer.kind)) is not None
        for node in pool.nodes.values()
        if (node.counts or is_dismissed(node) or is_sidelined(node)) and node.was_ready
    }


def _availability_key(stock: MachineKind) -> AvailabilityKey | None:
    return AvailabilityKey(stock.zone, stock.accelerator) if stock.spot and stock.accelerator in BY_NAME else None


def _asked_s(watch: Watch, allocator: Allocator) -> dict[PoolRef, float]:
    raised = {
        ref: pool.operation.asked_s
        for ref, pool in allocator.pools.items()
        if pool.operation is not None and pool.operation.raises
    }
    return {ref: asked_s for ref, asked_s in {**watch.asked_s, **raised}.items() if ref in allocator.pools}


def _is_unlisted(watch: Watch, pool: Pool) -> bool:
    """Check whether the pool's nodes are new. Nodes of a pool that was just taken over may be days old."""
    return not pool.adopted or pool.ref in watch.sighted


def _boot_s(asked_s: float | None, now_s: float) -> float | None:
    return now_s - asked_s if asked_s is not None else None


def _was_taken(watch: Watch, allocator: Allocator, key: NodeKey) -> bool:
    """Check whether a node was preempted, and not removed by us, upgraded or repaired by the cloud, or out of sight."""
    is_seen = allocator.clusters.get(key[0].cluster, False)
    pool = allocator.pools.get(key[0])
    node = pool.nodes.get(key[1]) if pool is not None else None
    if (pool is not None and pool.updating) or (node is not None and node.useless):
        return False
    return is_seen and allocator.ended is None and key not in watch.given_back


def _is_removed(pool: Pool, name: str) -> bool:
    operation = pool.operation
    return operation is not None and (operation.kind is Kind.DELETE or name in operation.nodes)


def _refusals(watch: Watch, allocator: Allocator, at: float) -> Iterator[Observation]:
    for stock, closure in newly_closed(watch.availability, allocator.availability):
        availability_key = _availability_key(stock)
        if availability_key is not None and closure.shortage is Shortage.STOCKOUT:
            yield StockedOut(*availability_key, at)
        elif availability_key is not None and closure.shortage is Shortage.QUOTA:
            yield QuotaRefused(*availability_key, at)


def _is_other(one: str, other: str) -> bool:
    return bool(one and other and one != other)
