"""Learns from observations of nodes, from notices and from losses."""

from dataclasses import replace

from controlplane.allocator.availability import start_cooldown
from controlplane.allocator.counting import is_settled
from controlplane.allocator.events import NodesSeen
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Allocator, Kind, Node, Pool
from messages.clusters import NodeObservation
from messages.ids import ClusterName

TOMBSTONES_AT_MOST = 200


def learn_observation(allocator: Allocator, event: NodesSeen) -> Allocator:
    for pool in allocator.pools.values():
        if pool.ref.cluster != event.cluster:
            continue
        observations = {
            observation.node: observation for observation in event.nodes if observation.pool == pool.ref.pool
        }
        seen = _see(pool, observations, event.at_s)
        if _losses(pool, seen):
            allocator = start_cooldown(allocator, pool.offer.kind, event.at_s)
        if _cordoned(seen) - _cordoned(pool):
            # A cordon may begin an upgrade, which only a listing shows.
            allocator = replace(allocator, listing=replace(allocator.listing, unlisted_s=event.at_s))
        allocator = replace(allocator, pools={**allocator.pools, pool.ref: seen})
    return allocator


def lose_cluster(allocator: Allocator, cluster: ClusterName, at_s: float) -> Allocator:
    """Mark all nodes of a cluster as lost at once, so that one decision replaces them; stop requests there."""
    allocator = replace(allocator, clusters={**allocator.clusters, cluster: False})
    if allocator.demand is not None:
        for offer in allocator.offers:
            allocator = start_cooldown(allocator, offer.kind, at_s) if offer.cluster == cluster else allocator
    for pool in allocator.pools.values():
        if pool.ref.cluster != cluster:
            continue
        alive = [node for node in pool.nodes.values() if node.lost_s is None]
        if pool.hanging_s is None and pool.target > len(pool.nodes):
            # Do not wait for nodes that were coming there either.
            pool = replace(pool, hanging_s=at_s)
        for node in alive:
            pool = lose(pool, node, at_s)
        if alive:
            allocator = start_cooldown(allocator, pool.offer.kind, at_s)
        allocator = replace(allocator, pools={**allocator.pools, pool.ref: pool})
    return allocator


def sideline(pool: Pool, settings: AllocatorSettings, now_s: float) -> tuple[Pool, int]:
    """Sideline cordoned and unready nodes: replace but keep them, since they may recover. Return their number too."""
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
    """Mark noticed nodes that the job has left as lost: until the end of a long notice they would cost money unused."""
    soon_s = now_s + settings.notice_idle_s
    for node in pool.nodes.values():
        is_late = node.notice_until_s is not None and node.notice_until_s > soon_s
        if is_late and node.lost_s is None and node.name in left:
            pool = lose(pool, node, now_s)
    return pool


def lose(pool: Pool, node: Node, now_s: float) -> Pool:
    """Mark the node as lost; later reports of it do not revive it."""
    dead = (*pool.dead, node.uid)[-TOMBSTONES_AT_MOST:] if node.uid else pool.dead
    return replace(_put(pool, replace(node, lost_s=now_s, abandoned=False)), dead=dead)


def revive(pool: Pool) -> Pool:
    """Count nodes again in slots whose removal failed: the pool's target still includes them.

    Other nodes in removed slots are on their way out, and a late observation does not revive them.
    """
    if not is_settled(pool):
        return pool
    abandoned = [node for node in pool.nodes.values() if node.abandoned]
    slots = max(0, pool.target - (len(pool.nodes) - len(abandoned)))
    for node in abandoned[:slots]:
        pool = _put(pool, replace(node, lost_s=None, abandoned=False))
    return pool


def _is_overdue(node: Node, settings: AllocatorSettings, now_s: float) -> bool:
    if node.notice_until_s is not None:
        return now_s >= node.notice_until_s
    if node.sidelined_s is not None:
        return now_s - node.sidelined_s >= settings.unready_timeout_s
    return not node.was_ready and now_s - node.first_seen_s >= settings.arrival_s


def _see(pool: Pool, observations: dict[str, NodeObservation], at_s: float) -> Pool:
    removed = frozenset(
        (name, uid) for name, uid in pool.removed if name in observations and uid in ("", observations[name].uid)
    )
    gone_by_name = {name for name, _ in removed}
    nodes = {
        name: _look_at(pool, observation, at_s)
        for name, observation in observations.items()
        if name not in gone_by_name
    }
    gone = pool.nodes.keys() - nodes.keys() - _leaving(pool)
    empty = max(0, _target(pool) - len(nodes))
    vacated = dict.fromkeys(gone, at_s) | pool.vacant
    vacant = sorted((name, since_s) for name, since_s in vacated.items() if name not in nodes)[:empty]
    return replace(pool, nodes=nodes, vacant=dict(vacant), removed=removed, sighted_s=at_s)


def _look_at(pool: Pool, observation: NodeObservation, at_s: float) -> Node:
    node = pool.nodes.get(observation.node)
    if node is None or _is_other(node, observation.uid):
        is_dead = observation.uid in pool.dead
        abandoned = not is_dead and observation.node in _abandoned(pool)
        lost_s = at_s if is_dead or abandoned else None
        node = Node(observation.node, observation.uid, first_seen_s=at_s, lost_s=lost_s, abandoned=abandoned)
    was_ready = node.was_ready or observation.was_ready
    node = replace(
        node,
        uid=observation.uid or node.uid,
        ready=observation.ready,
        was_ready=was_ready or observation.ready,
        unready_s=None if observation.ready or not was_ready else (at_s if node.unready_s is None else node.unready_s),
        cordoned=observation.cordoned,
        sidelined_s=None if observation.ready and not observation.cordoned else node.sidelined_s,
    )
    if observation.notice_s is None or observation.cordoned:
        return node
    if node.is_sound or (node.abandoned and node.notice_until_s is None):
        return replace(node, notice_until_s=at_s + max(0.0, observation.notice_s))
    return node


def _losses(before: Pool, after: Pool) -> int:
    """The number of sound machines that were lost without our doing and without an upgrade or a repair."""
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
    """Nodes that are being removed by name: their slots go with them."""
    operation = pool.operation
    if operation is not None and operation.kind is Kind.DELETE:
        return frozenset(pool.nodes)
    return operation.nodes if operation is not None and operation.kind is Kind.REMOVE else frozenset()


def _abandoned(pool: Pool) -> frozenset[str]:
    """Vacant slots that are being removed: a node that fills one now is removed with it."""
    operation = pool.operation
    return operation.vacant if operation is not None and operation.kind is Kind.REMOVE else frozenset()


def _target(pool: Pool) -> int:
    return max(pool.target, pool.operation.target if pool.operation is not None else 0)


def _is_other(node: Node, uid: str) -> bool:
    return bool(node.uid and uid and node.uid != uid)


def _put(pool: Pool, node: Node) -> Pool:
    vacant = {name: since_s for name, since_s in pool.vacant.items() if name != node.name}
    return replace(pool, nodes={**pool.nodes, node.name: node}, vacant=vacant)
