"""What an allocator's state teaches about zones: machines that came, that were refused, that lived and that were taken.

A watch remembers of a job's last state as much as is needed to tell what is new in the next.
Only spot machines count: what is on demand is neither refused nor taken in the same way. A machine in a cluster of
which nothing is heard was not taken for all we know.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controlplane.allocator import state
from controlplane.allocator.availability import newly_closed
from controlplane.allocator.counting import is_dismissed, is_sidelined
from controlplane.allocator.state import Allocator, Kind, Pool, Shortage
from controlplane.catalog.accelerators import BY_NAME
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.memory import Granted, Lived, Observation, QuotaRefused, Shelf, StockedOut, Taken
from controlplane.clouds.interface import PoolRef

LIVED_EVERY_S = 600.0
"""A machine that runs is told of so often: what it has lived counts before it ends."""

NodeKey = tuple[PoolRef, str]


@dataclass(frozen=True, slots=True)
class Alive:
    uid: str
    shelf: Shelf
    told_s: float
    """Up to then its life has been told."""


@dataclass(frozen=True, slots=True)
class Watch:
    alive: Mapping[NodeKey, Alive] = field(default_factory=dict)
    asked_s: Mapping[PoolRef, float] = field(default_factory=dict)
    """When more were last asked for, of pools that were raised since the watch began."""
    sighted: frozenset[PoolRef] = frozenset()
    availability: Mapping[MachineKind, state.Availability] = field(default_factory=dict)
    given_back: frozenset[NodeKey] = frozenset()
    """What we were removing ourselves."""


def observe(watch: Watch, allocator: Allocator, now_s: float, at: float) -> tuple[Watch, tuple[Observation, ...]]:
    """`now_s` on the allocator's clock, which is `at` in seconds since 1970."""
    asked_s = _asked_s(watch, allocator)
    alive = _alive(allocator)
    seen: list[Observation] = [*_refusals(watch, allocator, at)]
    kept: dict[NodeKey, Alive] = {}
    for key, (uid, shelf) in alive.items():
        known = watch.alive.get(key)
        if known is None or _is_other(known.uid, uid):
            kept[key] = Alive(uid, shelf, now_s)
            if _is_news(watch, allocator.pools[key[0]]):
                seen.append(Granted(*shelf, at, _boot_s(asked_s.get(key[0]), now_s)))
        else:
            told_s = now_s if now_s - known.told_s >= LIVED_EVERY_S else known.told_s
            kept[key] = Alive(uid or known.uid, shelf, told_s)
            if told_s > known.told_s:
                seen.append(Lived(*shelf, at, told_s - known.told_s))
    for key, known in watch.alive.items():
        now = kept.get(key)
        if now is None or _is_other(known.uid, now.uid):
            ended = Taken if _was_taken(watch, allocator, key) else Lived
            seen.append(ended(*known.shelf, at, max(0.0, now_s - known.told_s)))
    sighted = {ref for ref, pool in allocator.pools.items() if pool.sighted_s is not None}
    given_back = frozenset(key for key in kept if _is_removed(allocator.pools[key[0]], key[1]))
    return Watch(kept, asked_s, watch.sighted | sighted, allocator.availability, given_back), tuple(seen)


def _alive(allocator: Allocator) -> dict[NodeKey, tuple[str, Shelf]]:
    return {
        (ref, node.name): (node.uid, shelf)
        for ref, pool in allocator.pools.items()
        if (shelf := _shelf(pool.offer.kind)) is not None
        for node in pool.nodes.values()
        if (node.counts or is_dismissed(node) or is_sidelined(node)) and node.was_ready
    }


def _shelf(stock: MachineKind) -> Shelf | None:
    return Shelf(stock.zone, stock.accelerator) if stock.spot and stock.accelerator in BY_NAME else None


def _asked_s(watch: Watch, allocator: Allocator) -> dict[PoolRef, float]:
    raised = {
        ref: pool.operation.asked_s
        for ref, pool in allocator.pools.items()
        if pool.operation is not None and pool.operation.raises
    }
    return {ref: asked_s for ref, asked_s in {**watch.asked_s, **raised}.items() if ref in allocator.pools}


def _is_news(watch: Watch, pool: Pool) -> bool:
    """What a pool had when it was first seen may have been there for days."""
    return not pool.adopted or pool.ref in watch.sighted


def _boot_s(asked_s: float | None, now_s: float) -> float | None:
    return now_s - asked_s if asked_s is not None else None


def _was_taken(watch: Watch, allocator: Allocator, key: NodeKey) -> bool:
    """Rather than removed by us, upgraded or repaired by the cloud, or only out of sight."""
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
        shelf = _shelf(stock)
        if shelf is not None and closure.shortage is Shortage.STOCKOUT:
            yield StockedOut(*shelf, at)
        elif shelf is not None and closure.shortage is Shortage.QUOTA:
            yield QuotaRefused(*shelf, at)


def _is_other(one: str, other: str) -> bool:
    return bool(one and other and one != other)
