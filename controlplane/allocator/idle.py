"""Nodes that a planned job has not used for a long time: they are removed, and not requested again soon."""

import math
from collections.abc import Iterator
from dataclasses import replace

from controlplane.allocator.counting import held, is_settled
from controlplane.allocator.facts import moved_by_a_little
from controlplane.allocator.state import Allocator, Cutback, Node, Pool
from controlplane.clouds.interface import PoolRef
from controlplane.planning.market import Market
from messages.ids import ClusterName
from runtime.backoff import pause_after


def note_free(allocator: Allocator, cluster: ClusterName, free: tuple[str, ...], at_s: float) -> Allocator:
    names, since_s = frozenset(free), allocator.idle_since_s.get(cluster, {})
    if names == allocator.released.get(cluster, frozenset()):
        return allocator
    return replace(
        allocator,
        released={**allocator.released, cluster: names},
        idle_since_s={**allocator.idle_since_s, cluster: {name: since_s.get(name, at_s) for name in free}},
    )


def idle_cap(allocator: Allocator, left: int, now_s: float) -> Cutback:
    """The cap after idle nodes are removed. If too few are left to run with, it ends after a pause that doubles."""
    demand, known, settings = allocator.demand, allocator.idle_cap, allocator.settings
    if demand is None or left >= demand.criteria.min_workers:
        return Cutback(left, math.inf, 0)
    times = 0 if known is None else known.times + (known.nodes is None)
    return Cutback(left, now_s + pause_after(times + 1, settings.idle_timeout_s, settings.rest_max_s), times)


def forget_idle_cap(before: Allocator, after: Allocator, now_s: float) -> Allocator:
    """Drop the cap when the demand, the market or the preempted zones change: more nodes may be useful then."""
    cap = after.idle_cap
    if cap is None:
        return after
    if cap.nodes is not None and now_s >= cap.until_s:
        return replace(after, idle_cap=replace(cap, nodes=None))
    if cap.nodes is None and after.demand is not None and _held(after) >= after.demand.criteria.min_workers:
        return replace(after, idle_cap=None)
    losses = [known.cooldown_until_s for known in after.availability.values()]
    known = [known.cooldown_until_s for known in before.availability.values()]
    changed = (after.wanted, after.demand) != (before.wanted, before.demand) or _is_other(before.market, after.market)
    return replace(after, idle_cap=None) if changed or losses != known else after


def idle_nodes(allocator: Allocator, now_s: float) -> dict[PoolRef, list[str]]:
    """Overdue idle nodes that the job can run without; all of them if too few are left to run with."""
    if allocator.demand is None:
        return {}
    here = _held(allocator)
    most = here - allocator.demand.criteria.min_workers
    left = most if most >= 0 else here
    found: dict[PoolRef, list[str]] = {}
    for pool in allocator.pools.values():
        overdue = [node.name for node, due_s in _due(allocator, pool) if now_s >= due_s]
        if overdue and left > 0 and is_settled(pool):
            found[pool.ref] = sorted(overdue)[:left]
            left -= len(found[pool.ref])
    return found


def idle_due_s(allocator: Allocator) -> Iterator[float]:
    if allocator.demand is not None:
        for pool in allocator.pools.values():
            yield from (due_s for _, due_s in _due(allocator, pool))


def _is_other(before: Market | None, after: Market | None) -> bool:
    return before is None or after is None or not moved_by_a_little(before, after)


def _held(allocator: Allocator) -> int:
    return sum(held(pool) for pool in allocator.pools.values())


def _due(allocator: Allocator, pool: Pool) -> Iterator[tuple[Node, float]]:
    since_s = allocator.idle_since_s.get(pool.ref.cluster, {})
    for name, node in pool.nodes.items():
        if name in since_s and node.counts:
            yield node, max(since_s[name], node.first_seen_s) + allocator.settings.idle_timeout_s
