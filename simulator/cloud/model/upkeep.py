"""Changes that GKE makes by itself: upgrades of pools, repairs of nodes that are not ready, maintenance of hosts.

An upgrade cordons each node in turn, evicts its pods, and re-creates its machine under the same name. A surge creates
extra nodes first and removes them at the end; meanwhile the target of the instance group is larger (not verified
against Google).
"""

from collections.abc import Iterator
from dataclasses import replace

from simulator.cloud.model import view
from simulator.cloud.model.groups import add_node, remove_nodes
from simulator.cloud.model.names import PoolKey
from simulator.cloud.model.operations import done, start
from simulator.cloud.model.spot import forgotten_from
from simulator.cloud.model.state import Cloud, Failure, Kind, Node, Operation, Pool


def proceed(cloud: Cloud, at_s: float) -> Cloud:
    for node in list(cloud.nodes.values()):
        if node.instance is not None and node.instance.stops_s <= at_s:
            cloud = _recreate(cloud, node, at_s)
    cloud = _start_upgrades(cloud, at_s)
    cloud = _start_repairs(cloud, at_s)
    for operation in [each for each in cloud.operations.values() if not each.is_done]:
        if operation.kind is Kind.UPGRADE_NODES:
            cloud = _upgrade(cloud, operation, at_s)
        elif operation.kind is Kind.REPAIR_NODES:
            cloud = _repair(cloud, operation, at_s)
    return cloud


def begin_upgrade(cloud: Cloud, pool: Pool, at_s: float) -> Cloud:
    cloud, _ = start(cloud, Kind.UPGRADE_NODES, pool.key.of, at_s, pool.key.pool)
    return _with_surge(cloud, pool, at_s)


def is_excluded(cloud: Cloud, key: PoolKey, at_s: float) -> bool:
    return any(exclusion.keeps_nodes(at_s) for exclusion in cloud.clusters[key.of].exclusions)


def wake_times(cloud: Cloud) -> Iterator[float]:
    rules = cloud.rules
    for node in cloud.nodes.values():
        if node.instance is not None:
            yield node.instance.stops_s
        if node.drain_began_s is not None:
            yield node.drain_began_s + rules.drain_s
        if node.unready_since_s is not None:
            yield node.unready_since_s + rules.repair_s
    if rules.upgrade_every_s > 0:
        yield from (pool.version_s + rules.upgrade_every_s for pool in cloud.pools.values())
        yield from (each.until_s for cluster in cloud.clusters.values() for each in cluster.exclusions)


def _start_upgrades(cloud: Cloud, at_s: float) -> Cloud:
    every_s = cloud.rules.upgrade_every_s
    for pool in list(cloud.pools.values()):
        is_due = every_s > 0 and pool.spec.auto_upgrade and at_s >= pool.version_s + every_s
        if is_due and _is_free(cloud, pool) and not is_excluded(cloud, pool.key, at_s):
            cloud = begin_upgrade(cloud, pool, at_s)
    return cloud


def _start_repairs(cloud: Cloud, at_s: float) -> Cloud:
    for pool in list(cloud.pools.values()):
        names = tuple(
            node.name
            for node in view.members(cloud, pool.key)
            if node.unready_since_s is not None and at_s >= node.unready_since_s + cloud.rules.repair_s
        )
        if names and pool.spec.auto_repair and _is_free(cloud, pool):
            cloud, _ = start(cloud, Kind.REPAIR_NODES, pool.key.of, at_s, pool.key.pool, nodes=names)
    return cloud


def _is_free(cloud: Cloud, pool: Pool) -> bool:
    return not pool.deleting and not view.has_conflict(cloud, pool.key)


def _upgrade(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    pool = cloud.pools[operation.pool_key]
    cloud = _recreate_drained(cloud, pool, at_s)
    if _old(cloud, operation):
        cloud = _with_surge(cloud, pool, at_s)
    pool = cloud.pools[pool.key]
    there = view.members(cloud, pool.key)
    own = [node for node in there if not node.is_surge]
    old = _old(cloud, operation)
    surge = [node for node in there if node.is_surge]
    in_work = [node for node in own if node.drain_began_s is not None or not view.is_running(cloud, node)]
    room = pool.spec.max_unavailable + sum(view.is_running(cloud, node) for node in surge) - len(in_work)
    waiting = [node for node in old if node not in in_work]
    for node in waiting[: max(0, room)]:
        cloud = _with_node(cloud, replace(node, drain_began_s=at_s))
    if old or in_work:
        return _abandoned(cloud, operation, at_s)
    return done(_without_surge(cloud, replace(pool, version_s=at_s), at_s), operation, at_s)


def _old(cloud: Cloud, operation: Operation) -> list[Node]:
    """Nodes whose machines are older than the operation."""
    there = view.members(cloud, operation.pool_key)
    return [node for node in there if node.instance is not None and node.instance.started_s < operation.started_s]


def _repair(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    pool = cloud.pools[operation.pool_key]
    cloud = _recreate_drained(cloud, pool, at_s)
    nodes = [cloud.nodes[name] for name in operation.nodes if name in cloud.nodes]
    for node in nodes:
        is_old = node.instance is not None and node.instance.started_s < operation.started_s
        if is_old and node.drain_began_s is None and not node.leaving:
            cloud = _with_node(cloud, replace(node, drain_began_s=at_s))
    is_over = all(view.is_running(cloud, node) and node.drain_began_s is None for node in nodes)
    was_renewed = all(node.instance is not None and node.instance.started_s >= operation.started_s for node in nodes)
    return done(cloud, operation, at_s) if is_over and was_renewed else _abandoned(cloud, operation, at_s)


def _recreate_drained(cloud: Cloud, pool: Pool, at_s: float) -> Cloud:
    for node in view.nodes_of(cloud, pool.key):
        instance, known_node = node.instance, cloud.region_nodes.get(node.name)
        if instance is None or node.drain_began_s is None or instance.is_noticed:
            continue
        is_empty = known_node is None or known_node.drained == instance.id
        if is_empty or at_s >= node.drain_began_s + cloud.rules.drain_s:
            cloud = _recreate(cloud, node, at_s)
    return cloud


def _recreate(cloud: Cloud, node: Node, at_s: float) -> Cloud:
    renewed = replace(node, instance=None, request_at_s=at_s, drain_began_s=None, unready_since_s=None)
    return replace(_with_node(cloud, renewed), region_nodes=forgotten_from(cloud, node.name, at_s))


def _abandoned(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    """Missing machines end the operation with an error; the group keeps trying."""
    refused = view.failures(cloud, operation.pool_key)
    if not refused or at_s < operation.started_s + cloud.rules.give_up_s:
        return cloud
    cloud = _without_surge(cloud, cloud.pools[operation.pool_key], at_s)
    return done(cloud, operation, at_s, Failure(refused[0][1].shortage, refused[0][1].message))


def _with_surge(cloud: Cloud, pool: Pool, at_s: float) -> Cloud:
    groups = []
    for group in pool.groups:
        there = view.members(cloud, pool.key, group.zone)
        extra = sum(node.is_surge for node in there)
        missing = max(0, min(pool.spec.max_surge, len(there) - extra) - extra)
        for _ in range(missing):
            cloud = add_node(cloud, pool, group, at_s, is_surge=True)
        groups.append(replace(group, target=group.target + missing))
    return _with_pool(cloud, replace(pool, groups=tuple(groups)))


def _without_surge(cloud: Cloud, pool: Pool, at_s: float) -> Cloud:
    groups = []
    for group in pool.groups:
        extra = [node.name for node in view.members(cloud, pool.key, group.zone) if node.is_surge]
        cloud = remove_nodes(cloud, extra, at_s)
        groups.append(replace(group, target=group.target - len(extra)))
    return _with_pool(cloud, replace(pool, groups=tuple(groups)))


def _with_node(cloud: Cloud, node: Node) -> Cloud:
    return replace(cloud, nodes={**cloud.nodes, node.name: node})


def _with_pool(cloud: Cloud, pool: Pool) -> Cloud:
    return replace(cloud, pools={**cloud.pools, pool.key: pool})
