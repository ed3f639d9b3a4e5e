"""Counts of a pool's nodes: held now, expected, and the most that may arrive."""

from collections.abc import Iterable

from controlplane.allocator.state import Allocator, Kind, Node, Pool
from controlplane.clouds.interface import PoolRef


def held(pool: Pool) -> int:
    """The number of nodes that exist and will stay."""
    return sum(node.counts for node in pool.nodes.values())


def not_counted(pool: Pool) -> int:
    """The number of nodes that are reported but do not count: lost, noticed, sidelined or dismissed."""
    return len(pool.nodes) - held(pool)


def noticed(pool: Pool) -> int:
    """The number of nodes that have a notice and still exist."""
    return sum(map(_is_noticed, pool.nodes.values()))


def sidelined(pool: Pool) -> int:
    """The number of nodes that were replaced but stay, because they may recover."""
    return sum(map(is_sidelined, pool.nodes.values()))


def dismissed(pool: Pool) -> int:
    """The number of nodes that are removed once the job has left them."""
    return sum(map(is_dismissed, pool.nodes.values()))


def is_dismissed(node: Node) -> bool:
    return bool(node.dismissed) and node.is_sound


def lost(pool: Pool) -> list[Node]:
    """Nodes that are lost but still reported."""
    return [node for node in pool.nodes.values() if node.lost_s is not None]


def is_there(pool: Pool) -> bool:
    """Report whether the pool exists or may come to exist."""
    return pool.exists or pool.operation is not None or pool.doubt is not None


def is_settled(pool: Pool) -> bool:
    """Report whether the pool's target is known and no operation, ours or the cloud's, is in progress."""
    return is_ours(pool) and not pool.updating


def is_ours(pool: Pool) -> bool:
    """Report whether no operation of ours is in progress; the cloud may be upgrading the pool's nodes."""
    return pool.operation is None and pool.doubt is None and not pool.stopping


def in_doubt(pool: Pool) -> int:
    """The highest target that the pool may have after a lost answer."""
    return max(pool.target, pool.doubt.target) if pool.doubt is not None else pool.target


def at_most(pool: Pool, *, with_noticed: bool = False, with_sidelined: bool = False) -> int:
    """The most nodes that the pool may come to hold, with operations in progress: the number that caps check.

    A slot does not count if it is being removed, was written off, or its node has a notice: such a node stays until it
    is gone, and its slot is removed then. A sidelined node does not count, because it has no worker.
    `with_sidelined`: count sidelined nodes, which cost money. `with_noticed`: count all nodes that exist, as quotas do.
    """
    aside = sidelined(pool)
    counted = _at_most_beside(pool, aside, with_noticed=with_noticed)
    return counted + (aside if with_noticed or with_sidelined else 0)


def _at_most_beside(pool: Pool, aside: int, *, with_noticed: bool) -> int:
    operation, target = pool.operation, in_doubt(pool)
    here = held(pool) + (noticed(pool) if with_noticed else 0)
    if pool.abandoned and not (operation is not None and operation.raises):
        return here
    uncounted = pool.written_off
    if pool.stopping:
        target = 0
    if operation is not None and operation.raises:
        target = operation.target
    elif pool.doubt is None:
        removed = operation.nodes if operation is not None else frozenset()
        uncounted |= {node.name for node in pool.nodes.values() if _is_noticed(node)} | removed
        if operation is not None and operation.kind is Kind.RESIZE and pool.hanging_s is None:
            target = operation.target
            uncounted -= operation.vacant
    gone = [name for name in uncounted if _is_gone(pool, name)]
    if with_noticed:
        gone = [name for name in gone if name not in pool.nodes or not _is_noticed(pool.nodes[name])]
    return _less(max(0, target - aside), here, len(gone))


def expected(pool: Pool) -> int:
    """The nodes that the pool will hold if nothing is done: like `at_most`, without slots whose nodes were lost.

    The cloud tries to refill such slots, but a zone that just preempted a machine may have no other. Nodes that did not
    come in time and dismissed nodes do not count either.
    """
    if pool.stopping:
        return 0
    if pool.hanging_s is not None and is_settled(pool):
        return held(pool)
    is_done = pool.operation is None and pool.doubt is not None and pool.doubt.done
    if not is_settled(pool) and not is_done:
        return max(held(pool), at_most(pool) - dismissed(pool))
    return _less(pool.target, held(pool), not_counted(pool) + len(pool.vacant))


def spare(allocator: Allocator, pool: Pool) -> list[Node]:
    """Unused nodes, those that were never ready first; without nodes that became unready and may recover."""
    released = allocator.released.get(pool.ref.cluster, frozenset())
    stable = [node for node in pool.nodes.values() if node.counts and node.unready_s is None]
    unused = [node for node in stable if not node.was_ready or node.name in released]
    return sorted(unused, key=lambda node: (node.was_ready, node.name))


def ceiling(allocator: Allocator) -> int:
    """The most nodes that the job may have."""
    if allocator.demand is None:
        return allocator.wanted
    if is_paused(allocator):
        return 0
    most = min(allocator.wanted, allocator.demand.criteria.max_workers)
    cutbacks = [each.nodes for each in (allocator.idle_cap, allocator.cutback) if each is not None]
    return min([most, *(nodes for nodes in cutbacks if nodes is not None)])


def is_paused(allocator: Allocator) -> bool:
    """Report whether a planned job wants fewer nodes than it needs to run: then it gets none."""
    return allocator.demand is not None and allocator.wanted < allocator.demand.criteria.min_workers


def is_resting(allocator: Allocator) -> bool:
    """Report whether too few nodes came to run with: they are removed, and no more are requested for a while."""
    demand, cap = allocator.demand, allocator.idle_cap
    return demand is not None and cap is not None and cap.nodes is not None and cap.nodes < demand.criteria.min_workers


def wants_none(allocator: Allocator) -> bool:
    return allocator.wanted == 0 or is_paused(allocator)


def total(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
    return sum(at_most(pool) for pool in pools if pool.ref != but)


def _less(target: int, here: int, without: int) -> int:
    empty = max(0, target - here)
    return max(target, here) - min(empty, without)


def _is_noticed(node: Node) -> bool:
    return node.notice_until_s is not None and node.lost_s is None


def is_sidelined(node: Node) -> bool:
    return node.sidelined_s is not None and node.is_sound


def _is_gone(pool: Pool, name: str) -> bool:
    node = pool.nodes.get(name)
    if node is None:
        return name in pool.vacant
    return node.notice_until_s is not None or node.lost_s is not None
