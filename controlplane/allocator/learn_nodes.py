"""What sights of nodes, notices and losses teach."""

from dataclasses import replace

from controlplane.allocator.availability import distrust
from controlplane.allocator.counting import is_settled
from controlplane.allocator.events import NodesSeen
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Allocator, Kind, Node, Pool
from messages.clusters import NodeSight
from messages.ids import ClusterName

TOMBSTONES_AT_MOST = 200


def learn_sight(allocator: Allocator, event: NodesSeen) -> Allocator:
    for pool in allocator.pools.values():
        if pool.ref.cluster != event.cluster:
            continue
        sights = {sight.node: sight for sight in event.nodes if sight.pool == pool.ref.pool}
        seen = _see(pool, sights, event.at_s)
        if _losses(pool, seen):
            allocator = distrust(allocator, pool.offer.kind, event.at_s)
        if _cordoned(seen) - _cordoned(pool):
            # What the cloud is about to do to the pool shows in a listing.
            allocator = replace(allocator, listing=replace(allocator.listing, news_s=event.at_s))
        allocator = replace(allocator, pools={**allocator.pools, pool.ref: seen})
    return allocator


def lose_cluster(allocator: Allocator, cluster: ClusterName, at_s: float) -> Allocator:
    """All its nodes at once, so that what takes their place is decided once; and nothing is asked for there now."""
    allocator = replace(allocator, clusters={**allocator.clusters, cluster: False})
    if allocator.demand is not None:
        for offer in allocator.offers:
            allocator = distrust(allocator, offer.kind, at_s) if offer.cluster == cluster else allocator
    for pool in allocator.pools.values():
        if pool.ref.cluster != cluster:
            continue
        alive = [node for node in pool.nodes.values() if node.lost_s is None]
        if pool.hanging_s is None and pool.target > len(pool.nodes):
            # Whoever was on the way there is not to be waited for either.
            pool = replace(pool, hanging_s=at_s)
        for node in alive:
            pool = lose(pool, node, at_s)
        if alive:
            allocator = distrust(allocator, pool.offer.kind, at_s)
        allocator = replace(allocator, pools={**allocator.pools, pool.ref: pool})
    return allocator


def sideline(pool: Pool, settings: AllocatorSettings, now_s: float) -> tuple[Pool, int]:
    """Nodes that are replaced from now on, but kept: whether they come back is not known. And how many those are."""
    count = 0
    for node in pool.nodes.values():
        is_unready = node.unready_s is not None and now_s - node.unready_s >= settings.unready_s
        if node.is_sound and node.sidelined_s is None and (node.cordoned or is_unready):
            pool = _put(pool, replace(node, sidelined_s=now_s, dismissed=""))
            count += 1
    return pool, count


def lose_overdue(pool: Pool, settings: AllocatorSettings, now_s: float) -> tuple[Pool, int]:
    overdue = [node for node in pool.nodes.values() if node.lost_s is None and _is_overdue(node, settings, now_s)]
    for node in overdue:
        pool = lose(pool, node, now_s)
    return pool, len(overdue)


def lose_left(pool: Pool, left: frozenset[str], settings: AllocatorSettings, now_s: float) -> Pool:
    """Noticed nodes that the job has left: for a long notice they would be paid for nothing."""
    soon_s = now_s + settings.notice_idle_s
    for node in pool.nodes.values():
        is_late = node.doomed_until_s is not None and node.doomed_until_s > soon_s
        if is_late and node.lost_s is None and node.name in left:
            pool = lose(pool, node, now_s)
    return pool


def lose(pool: Pool, node: Node, now_s: float) -> Pool:
    """From now on it does not count, whatever is said of it."""
    dead = (*pool.dead, node.uid)[-TOMBSTONES_AT_MOST:] if node.uid else pool.dead
    return replace(_put(pool, replace(node, lost_s=now_s, given_up=False)), dead=dead)


def revive(pool: Pool) -> Pool:
    """Whoever came to a slot that was given up, where it is known by now that this failed: it is still aimed at.

    Where it is not, its machine is on its way out, and a late sight of it is no reason to count it.
    """
    if not is_settled(pool):
        return pool
    given_up = [node for node in pool.nodes.values() if node.given_up]
    slots = max(0, pool.target - (len(pool.nodes) - len(given_up)))
    for node in given_up[:slots]:
        pool = _put(pool, replace(node, lost_s=None, given_up=False))
    return pool


def _is_overdue(node: Node, settings: AllocatorSettings, now_s: float) -> bool:
    if node.doomed_until_s is not None:
        return now_s >= node.doomed_until_s
    if node.sidelined_s is not None:
        return now_s - node.sidelined_s >= settings.unready_timeout_s
    return not node.was_ready and now_s - node.first_seen_s >= settings.arrival_s


def _see(pool: Pool, sights: dict[str, NodeSight], at_s: float) -> Pool:
    removed = frozenset((name, uid) for name, uid in pool.removed if name in sights and uid in ("", sights[name].uid))
    gone_by_name = {name for name, _ in removed}
    nodes = {name: _look_at(pool, sight, at_s) for name, sight in sights.items() if name not in gone_by_name}
    gone = pool.nodes.keys() - nodes.keys() - _leaving(pool)
    empty = max(0, _aim(pool) - len(nodes))
    vacated = dict.fromkeys(gone, at_s) | pool.vacant
    vacant = sorted((name, since_s) for name, since_s in vacated.items() if name not in nodes)[:empty]
    return replace(pool, nodes=nodes, vacant=dict(vacant), removed=removed, sighted_s=at_s)


def _look_at(pool: Pool, sight: NodeSight, at_s: float) -> Node:
    node = pool.nodes.get(sight.node)
    if node is None or _is_other(node, sight.uid):
        is_dead = sight.uid in pool.dead
        given_up = not is_dead and sight.node in _given_up(pool)
        lost_s = at_s if is_dead or given_up else None
        node = Node(sight.node, sight.uid, first_seen_s=at_s, lost_s=lost_s, given_up=given_up)
    was_ready = node.was_ready or sight.was_ready
    node = replace(
        node,
        uid=sight.uid or node.uid,
        ready=sight.ready,
        was_ready=was_ready or sight.ready,
        unready_s=None if sight.ready or not was_ready else (at_s if node.unready_s is None else node.unready_s),
        cordoned=sight.cordoned,
        sidelined_s=None if sight.ready and not sight.cordoned else node.sidelined_s,
    )
    if sight.notice_s is None or sight.cordoned:
        return node
    if node.is_sound or (node.given_up and node.doomed_until_s is None):
        return replace(node, doomed_until_s=at_s + max(0.0, sight.notice_s))
    return node


def _losses(before: Pool, after: Pool) -> int:
    """Machines that were sound and are no more, without our doing and without an upgrade or a repair."""
    if after.updating:
        return 0
    leaving = _leaving(before)
    lost = 0
    for name, node in before.nodes.items():
        now = after.nodes.get(name)
        same = now is not None and not _is_other(node, now.uid)
        was_ours_to_lose = node.is_sound and not node.cordoned and name not in leaving
        if was_ours_to_lose and not (same and now is not None and now.is_sound):
            lost += 1
    return lost


def _cordoned(pool: Pool) -> frozenset[str]:
    return frozenset(node.name for node in pool.nodes.values() if node.cordoned)


def _leaving(pool: Pool) -> frozenset[str]:
    """Those that are being removed by name: their slots go with them."""
    operation = pool.operation
    if operation is not None and operation.kind is Kind.DELETE:
        return frozenset(pool.nodes)
    return operation.nodes if operation is not None and operation.kind is Kind.REMOVE else frozenset()


def _given_up(pool: Pool) -> frozenset[str]:
    """Slots whose nodes were taken and that are being removed: whoever comes to fill one now goes with it."""
    operation = pool.operation
    return operation.vacant if operation is not None and operation.kind is Kind.REMOVE else frozenset()


def _aim(pool: Pool) -> int:
    return max(pool.target, pool.operation.target if pool.operation is not None else 0)


def _is_other(node: Node, uid: str) -> bool:
    return bool(node.uid and uid and node.uid != uid)


def _put(pool: Pool, node: Node) -> Pool:
    vacant = {name: since_s for name, since_s in pool.vacant.items() if name != node.name}
    return replace(pool, nodes={**pool.nodes, node.name: node}, vacant=vacant)
