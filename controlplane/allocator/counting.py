"""How many nodes a pool holds, will hold by what was asked, and may at most come to hold."""

from collections.abc import Iterable

from controlplane.allocator.state import Allocator, Kind, Node, Pool
from controlplane.clouds.interface import PoolRef


def held(pool: Pool) -> int:
    """Nodes that are there and will stay."""
    return sum(node.counts for node in pool.nodes.values())


def going(pool: Pool) -> int:
    """Nodes that are still in sight but lost, about to be, or given up."""
    return len(pool.nodes) - held(pool)


def doomed(pool: Pool) -> int:
    """Nodes that were noticed and have not gone yet."""
    return sum(map(_is_doomed, pool.nodes.values()))


def sidelined(pool: Pool) -> int:
    """Nodes that were replaced and are kept, because they may come back."""
    return sum(map(is_sidelined, pool.nodes.values()))


def dismissed(pool: Pool) -> int:
    """Nodes that go when the job has left them."""
    return sum(map(is_dismissed, pool.nodes.values()))


def is_dismissed(node: Node) -> bool:
    return bool(node.dismissed) and node.is_sound


def lost(pool: Pool) -> list[Node]:
    """Nodes that are of no more use, though they are still in sight."""
    return [node for node in pool.nodes.values() if node.lost_s is not None]


def is_there(pool: Pool) -> bool:
    """It exists, or may come to exist."""
    return pool.exists or pool.operation is not None or pool.doubt is not None


def is_settled(pool: Pool) -> bool:
    """It is known what the pool aims at, and nothing is under way that would change it."""
    return is_ours(pool) and not pool.updating


def is_ours(pool: Pool) -> bool:
    """Nothing of ours is under way there, whatever the cloud itself does to its nodes."""
    return pool.operation is None and pool.doubt is None and not pool.stopping


def in_doubt(pool: Pool) -> int:
    """The most that it may aim at when an answer was lost."""
    return max(pool.target, pool.doubt.target) if pool.doubt is not None else pool.target


def at_most(pool: Pool, *, with_doomed: bool = False, with_sidelined: bool = False) -> int:
    """What it may come to hold, counting what is under way: the number that caps are checked against.

    A slot is not counted if it is being given up or was written off, or if its node was noticed: that one must be left
    alone until it is gone, and its slot is given up then. A node that is replaced and kept has no worker, so that it is
    not counted either. `with_sidelined`: as money counts, which is paid for it; `with_doomed`: as quotas count, which
    have all that exist.
    """
    aside = sidelined(pool)
    counted = _at_most_beside(pool, aside, with_doomed=with_doomed)
    return counted + (aside if with_doomed or with_sidelined else 0)


def _at_most_beside(pool: Pool, aside: int, *, with_doomed: bool) -> int:
    operation, aim = pool.operation, in_doubt(pool)
    here = held(pool) + (doomed(pool) if with_doomed else 0)
    if pool.given_up and not (operation is not None and operation.raises):
        return here
    uncounted = pool.written_off
    if pool.stopping:
        aim = 0
    if operation is not None and operation.raises:
        aim = operation.target
    elif pool.doubt is None:
        removed = operation.nodes if operation is not None else frozenset()
        uncounted |= {node.name for node in pool.nodes.values() if _is_doomed(node)} | removed
        if operation is not None and operation.kind is Kind.RESIZE and pool.hanging_s is None:
            aim = operation.target
            uncounted -= operation.vacant
    gone = [name for name in uncounted if _is_gone(pool, name)]
    if with_doomed:
        gone = [name for name in gone if name not in pool.nodes or not _is_doomed(pool.nodes[name])]
    return _less(max(0, aim - aside), here, len(gone))


def expected(pool: Pool) -> int:
    """What it will hold if nothing is done: as `at_most`, but for slots whose nodes were taken.

    The cloud tries to fill those, but where a machine was just taken another is not to be counted on. Nor where they
    did not come in time. What was dismissed still is there for a while, but is on its way out.
    """
    if pool.stopping:
        return 0
    if pool.hanging_s is not None and is_settled(pool):
        return held(pool)
    is_done = pool.operation is None and pool.doubt is not None and pool.doubt.done
    if not is_settled(pool) and not is_done:
        return max(held(pool), at_most(pool) - dismissed(pool))
    return _less(pool.target, held(pool), going(pool) + len(pool.vacant))


def spare(allocator: Allocator, pool: Pool) -> list[Node]:
    """Nodes that nobody would miss, the least useful first; not those that just became unready and may recover."""
    released = allocator.released.get(pool.ref.cluster, frozenset())
    stable = [node for node in pool.nodes.values() if node.counts and node.unready_s is None]
    unused = [node for node in stable if not node.was_ready or node.name in released]
    return sorted(unused, key=lambda node: (node.was_ready, node.name))


def ceiling(allocator: Allocator) -> int:
    """The most nodes that there may be."""
    if allocator.demand is None:
        return allocator.wanted
    if is_paused(allocator):
        return 0
    most = min(allocator.wanted, allocator.demand.criteria.max_workers)
    cutbacks = [each.nodes for each in (allocator.idle_cap, allocator.cutback) if each is not None]
    return min([most, *(nodes for nodes in cutbacks if nodes is not None)])


def is_paused(allocator: Allocator) -> bool:
    """Fewer are wanted than a planned job can run with: then none are."""
    return allocator.demand is not None and allocator.wanted < allocator.demand.criteria.min_workers


def is_resting(allocator: Allocator) -> bool:
    """What came was too few to run with, and is given back: nothing is asked for until it is tried again."""
    demand, cap = allocator.demand, allocator.idle_cap
    return demand is not None and cap is not None and cap.nodes is not None and cap.nodes < demand.criteria.min_workers


def wants_none(allocator: Allocator) -> bool:
    return allocator.wanted == 0 or is_paused(allocator)


def total(pools: Iterable[Pool], *, but: PoolRef | None = None) -> int:
    return sum(at_most(pool) for pool in pools if pool.ref != but)


def _less(aim: int, here: int, without: int) -> int:
    empty = max(0, aim - here)
    return max(aim, here) - min(empty, without)


def _is_doomed(node: Node) -> bool:
    return node.doomed_until_s is not None and node.lost_s is None


def is_sidelined(node: Node) -> bool:
    return node.sidelined_s is not None and node.is_sound


def _is_gone(pool: Pool, name: str) -> bool:
    node = pool.nodes.get(name)
    if node is None:
        return name in pool.vacant
    return node.doomed_until_s is not None or node.lost_s is not None
