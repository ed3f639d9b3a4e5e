"""Nodes on which a planned job waits for others too much, where its owner set a limit: one goes at a time.

The job leaves the node by a hand-over, and then it goes like any other on which the job has nothing. Those that stay
may have more to do without it, so they are looked at afresh. What is left is enough for a while, whatever the plan
would gain by more: else it would ask for the node again that was just given up.
"""

from dataclasses import replace

from controlplane.allocator.backoff import pause_s
from controlplane.allocator.counting import ceiling, held, is_dismissed, is_paused, total
from controlplane.allocator.events import UseSeen
from controlplane.allocator.state import Allocator, Cutback, LowUse, Node, Pool
from controlplane.clouds.interface import PoolRef
from controlplane.throughput.use import NodeUse


def note_use(allocator: Allocator, event: UseSeen) -> Allocator:
    """Of a node that is not named nothing is known, which is no reason to give it up."""
    least, known = _asked_for(allocator), allocator.low_use
    low = {
        (each.cluster, each.node): _gone_on(known.get((each.cluster, each.node)), each, event.at_s - each.silent_s)
        for each in event.use
        if least is not None and each.share < least
    }
    return replace(allocator, low_use=low)


def dismiss_one(allocator: Allocator, now_s: float) -> Allocator:
    """The least used of those that were used too little for long, if the job can run without it."""
    demand = allocator.demand
    if not allocator.low_use or demand is None or is_paused(allocator):
        return allocator
    pools = allocator.pools.values()
    dispensable = sum(map(held, pools)) - demand.criteria.min_workers
    overdue = [found for pool in pools for found in _overdue(allocator, pool)]
    if dispensable <= 0 or not overdue or any(is_dismissed(node) for pool in pools for node in pool.nodes.values()):
        return allocator
    low, node, pool = min(overdue, key=lambda each: (each[0].share, each[1].name))
    left = max(demand.criteria.min_workers, min(ceiling(allocator), total(pools)) - 1)
    dismissed = _put(pool, replace(node, dismissed=_why(allocator, low, node)))
    cutback = _cutback(allocator, left, now_s)
    return replace(allocator, pools={**allocator.pools, pool.ref: dismissed}, cutback=cutback, low_use={})


def forget_cutback(before: Allocator, after: Allocator, now_s: float) -> Allocator:
    """What was of no use may be useful when another number is wanted, or after a while."""
    cutback = after.cutback
    if cutback is None:
        return after
    if _asked_of(after) != _asked_of(before):
        return replace(after, cutback=None)
    if cutback.nodes is not None and now_s >= cutback.until_s:
        return replace(after, cutback=replace(cutback, nodes=None))
    return after


def call_back(allocator: Allocator) -> Allocator:
    """Those that the job cannot run without, now that others were lost; but for those that go already."""
    demand, pools = allocator.demand, allocator.pools
    if demand is None or sum(map(held, pools.values())) >= demand.criteria.min_workers:
        return allocator
    for pool in pools.values():
        going = pool.operation.nodes if pool.operation is not None else frozenset()
        for node in pool.nodes.values():
            if is_dismissed(node) and node.name not in going:
                pool = _put(pool, replace(node, dismissed=""))
        pools = {**pools, pool.ref: pool}
    return replace(allocator, pools=pools)


def left_nodes(allocator: Allocator) -> dict[PoolRef, list[Node]]:
    """Those that were dismissed, and that the job has left."""
    found: dict[PoolRef, list[Node]] = {}
    for pool in allocator.pools.values():
        released = allocator.released.get(pool.ref.cluster, frozenset())
        left = [node for node in pool.nodes.values() if is_dismissed(node) and node.name in released]
        if left:
            found[pool.ref] = left
    return found


def _overdue(allocator: Allocator, pool: Pool) -> list[tuple[LowUse, Node, Pool]]:
    """By what was reported, up to the last time: what nobody reports is not known to be little."""
    released = allocator.released.get(pool.ref.cluster, frozenset())
    return [
        (low, node, pool)
        for name, node in pool.nodes.items()
        if node.counts and name not in released and (low := allocator.low_use.get((pool.ref.cluster, name))) is not None
        if _lasted_s(low, node) >= allocator.settings.idle_timeout_s
    ]


def _gone_on(known: LowUse | None, use: NodeUse, heard_s: float) -> LowUse:
    """What is said after a long silence tells nothing of the time before."""
    if known is None or heard_s - known.at_s > use.fresh_s:
        return LowUse(heard_s, heard_s, use.share)
    return LowUse(known.since_s, heard_s, use.share)


def _lasted_s(low: LowUse, node: Node) -> float:
    return low.at_s - max(low.since_s, node.first_seen_s)


def _cutback(allocator: Allocator, left: int, now_s: float) -> Cutback:
    known, settings = allocator.cutback, allocator.settings
    times = 0 if known is None else known.times + (known.nodes is None)
    return Cutback(left, now_s + pause_s(settings.regrow_after_s, settings.regrow_after_max_s, times), times)


def _asked_of(allocator: Allocator) -> tuple[object, ...]:
    if allocator.demand is None:
        return ()
    criteria = allocator.demand.criteria
    return allocator.wanted, criteria.min_workers, criteria.max_workers, criteria.min_utilisation


def _why(allocator: Allocator, low: LowUse, node: Node) -> str:
    asked, lasted_s = _asked_for(allocator) or 0.0, _lasted_s(low, node)
    of = "of the time in which it computed or waited for others"
    return f"the job computed on {node.name} in {low.share:.0%} {of}, below {asked:.0%} for {lasted_s:.0f} s"


def _asked_for(allocator: Allocator) -> float | None:
    return allocator.demand.criteria.min_utilisation if allocator.demand is not None else None


def _put(pool: Pool, node: Node) -> Pool:
    return replace(pool, nodes={**pool.nodes, node.name: node})
