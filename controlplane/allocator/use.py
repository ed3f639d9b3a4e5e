"""Dismissal of nodes with low use, if the job sets `min_utilisation`: one node at a time.

The job leaves the node by a hand-over, and then the node is removed like any unused one. The other nodes may have more
to do without it, so their use is measured again from the start. A cap on the nodes follows for a while: otherwise the
plan would request the removed node again.
"""

from dataclasses import replace

from controlplane.allocator.counting import ceiling, held, is_dismissed, is_paused, total
from controlplane.allocator.events import UseSeen
from controlplane.allocator.state import Allocator, Cutback, LowUse, Node, Pool
from controlplane.clouds.interface import PoolRef
from controlplane.throughput.use import NodeUse
from runtime.backoff import pause_after


def note_use(allocator: Allocator, event: UseSeen) -> Allocator:
    """Store which nodes have low use. A node that the event does not name has none."""
    least, known = _asked_for(allocator), allocator.low_use
    low = {
        (each.cluster, each.node): _continued(known.get((each.cluster, each.node)), each, event.at_s - each.silent_s)
        for each in event.use
        if least is not None and each.share < least
    }
    return replace(allocator, low_use=low)


def dismiss_one(allocator: Allocator, now_s: float) -> Allocator:
    """Dismiss the least used node whose low use lasted too long, if the job can run without it."""
    demand = allocator.demand
    if not allocator.low_use or demand is None or is_paused(allocator):
        return allocator
    pools = allocator.pools.values()
    surplus = sum(map(held, pools)) - demand.criteria.min_workers
    overdue = [found for pool in pools for found in _overdue(allocator, pool)]
    if surplus <= 0 or not overdue or any(is_dismissed(node) for pool in pools for node in pool.nodes.values()):
        return allocator
    low, node, pool = min(overdue, key=lambda each: (each[0].share, each[1].name))
    left = max(demand.criteria.min_workers, min(ceiling(allocator), total(pools)) - 1)
    dismissed = _put(pool, replace(node, dismissed=_why(allocator, low, node)))
    cutback = _cutback(allocator, left, now_s)
    return replace(allocator, pools={**allocator.pools, pool.ref: dismissed}, cutback=cutback, low_use={})


def forget_cutback(before: Allocator, after: Allocator, now_s: float) -> Allocator:
    """Drop the cap when another number of nodes is wanted; end it after its pause."""
    cutback = after.cutback
    if cutback is None:
        return after
    if _asked_of(after) != _asked_of(before):
        return replace(after, cutback=None)
    if cutback.nodes is not None and now_s >= cutback.until_s:
        return replace(after, cutback=replace(cutback, nodes=None))
    return after


def cancel_dismissals(allocator: Allocator) -> Allocator:
    """Cancel dismissals if the job needs the nodes after losses; nodes that are being removed stay dismissed."""
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


def dismissed_and_left(allocator: Allocator) -> dict[PoolRef, list[Node]]:
    """Dismissed nodes that the job has left, by pool."""
    found: dict[PoolRef, list[Node]] = {}
    for pool in allocator.pools.values():
        released = allocator.released.get(pool.ref.cluster, frozenset())
        left = [node for node in pool.nodes.values() if is_dismissed(node) and node.name in released]
        if left:
            found[pool.ref] = left
    return found


def _overdue(allocator: Allocator, pool: Pool) -> list[tuple[LowUse, Node, Pool]]:
    """Nodes whose low use lasted for `idle_timeout_s` up to the last report."""
    released = allocator.released.get(pool.ref.cluster, frozenset())
    return [
        (low, node, pool)
        for name, node in pool.nodes.items()
        if node.counts and name not in released and (low := allocator.low_use.get((pool.ref.cluster, name))) is not None
        if _lasted_s(low, node) >= allocator.settings.idle_timeout_s
    ]


def _continued(known: LowUse | None, use: NodeUse, heard_s: float) -> LowUse:
    """The low use with a new report; after a long silence it begins again."""
    if known is None or heard_s - known.at_s > use.fresh_s:
        return LowUse(heard_s, heard_s, use.share)
    return LowUse(known.since_s, heard_s, use.share)


def _lasted_s(low: LowUse, node: Node) -> float:
    return low.at_s - max(low.since_s, node.first_seen_s)


def _cutback(allocator: Allocator, left: int, now_s: float) -> Cutback:
    known, settings = allocator.cutback, allocator.settings
    times = 0 if known is None else known.times + (known.nodes is None)
    return Cutback(left, now_s + pause_after(times + 1, settings.regrow_after_s, settings.regrow_after_max_s), times)


def _asked_of(allocator: Allocator) -> tuple[object, ...]:
    if allocator.demand is None:
        return ()
    criteria = allocator.demand.criteria
    return allocator.wanted, criteria.min_workers, criteria.max_workers, criteria.min_utilisation


def _why(allocator: Allocator, low: LowUse, node: Node) -> str:
    asked, lasted_s = _asked_for(allocator) or 0.0, _lasted_s(low, node)
    of = "of the time that it computed or waited for others"
    return f"the job computed on {node.name} for {low.share:.0%} {of}, below {asked:.0%} for {lasted_s:.0f} s"


def _asked_for(allocator: Allocator) -> float | None:
    return allocator.demand.criteria.min_utilisation if allocator.demand is not None else None


def _put(pool: Pool, node: Node) -> Pool:
    return replace(pool, nodes={**pool.nodes, node.name: node})
