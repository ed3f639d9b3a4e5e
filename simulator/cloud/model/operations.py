"""When an operation is over, and how it ended.

An operation that cannot get its instances ends with an error after a while. What it was to make exists all the same,
and its groups keep trying: that an operation is over says nothing about what there is.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from simulator.cloud.model import chance, view
from simulator.cloud.model.names import ClusterKey, NodeName, OperationName, PoolKey, region_of
from simulator.cloud.model.requests import Started
from simulator.cloud.model.state import Cloud, Cluster, Failure, Kind, Operation, Pool, Shortage, Trouble
from simulator.cloud.model.view import is_full, is_gone, is_running, members

DONE_KEPT = 1000


def finish(cloud: Cloud, at_s: float) -> Cloud:
    for operation in [each for each in cloud.operations.values() if not each.is_done]:
        match operation.kind:
            case Kind.CREATE_CLUSTER:
                cloud = _created(cloud, operation, at_s)
            case Kind.DELETE_CLUSTER:
                cloud = _cluster_deleted(cloud, operation, at_s)
            case Kind.CREATE_POOL | Kind.RESIZE_POOL:
                cloud = _filled(cloud, operation, [cloud.pools[operation.pool_key]], operation.started_s, at_s)
            case Kind.DELETE_POOL:
                cloud = _pool_deleted(cloud, operation, at_s)
            case Kind.UPDATE:
                cloud = done(cloud, operation, at_s) if _has_lasted(cloud, operation, at_s) else cloud
            case Kind.DELETE_INSTANCES:
                cloud = _instances_deleted(cloud, operation, at_s)
            case Kind.UPGRADE_NODES | Kind.REPAIR_NODES:
                continue
            case _:
                assert_never(operation.kind)
    return _healed(_recovered(_bounded(cloud)), at_s)


def start(
    cloud: Cloud,
    kind: Kind,
    cluster: ClusterKey,
    at_s: float,
    pool: str = "",
    zone: str = "",
    nodes: Iterable[NodeName] = (),
) -> tuple[Cloud, Started]:
    cloud, number = chance.count(cloud)
    name = OperationName(f"operation-{number:013}-{chance.hexadecimal(cloud, 'operation', number)}")
    made = cloud.pools.get(PoolKey(*cluster, pool))
    expects = sum(group.target for group in made.groups) if made is not None else 0
    operation = Operation(name, kind, cluster, at_s, pool, zone, tuple(nodes), expects)
    return replace(cloud, operations={**cloud.operations, name: operation}), Started(name)


def wake_times(cloud: Cloud) -> Iterator[float]:
    rules = cloud.rules
    for pool in cloud.pools.values():
        if pool.trouble is not None and pool.trouble.healed_s is not None:
            yield pool.trouble.healed_s + rules.sticky_error_s
    for operation in cloud.operations.values():
        if not operation.is_done:
            began_s = operation.started_s
            if operation.kind is Kind.CREATE_CLUSTER:
                began_s = cloud.clusters[operation.cluster].up_s
                yield began_s
            yield began_s + rules.operation_s
            yield began_s + rules.stockout_s
            yield began_s + rules.give_up_s


def _created(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    cluster = cloud.clusters[operation.cluster]
    if at_s < cluster.up_s:
        return cloud
    if not cluster.endpoint:
        return _given_up(cloud, operation, cluster.up_s, at_s)
    return _filled(cloud, operation, view.pools_of(cloud, operation.cluster), cluster.up_s, at_s)


def _filled(cloud: Cloud, operation: Operation, pools: list[Pool], since_s: float, at_s: float) -> Cloud:
    targets = sum(group.target for pool in pools for group in pool.groups)
    if targets >= operation.expects and all(is_full(cloud, pool) for pool in pools):
        return done(cloud, operation, at_s) if _has_lasted(cloud, operation, at_s) else cloud
    if at_s >= since_s + cloud.rules.stockout_s:
        for pool in pools:
            failure = shortage_of(cloud, pool, at_s - since_s, since_s)
            if failure is not None:
                return done(cloud, operation, at_s, failure)
    return _given_up(cloud, operation, since_s, at_s)


def shortage_of(cloud: Cloud, pool: Pool, after_s: float, since_s: float = math.inf) -> Failure | None:
    """What GKE says of a pool whose nodes are refused their instances, or were since then; nothing if none was."""
    now = [failure for _, failure in view.failures(cloud, pool.key)]
    found = now or [error.why for error in pool.errors if error.at_s >= since_s]
    if not found:
        return None
    there = members(cloud, pool.key)
    running = sum(is_running(cloud, node) for node in there)
    first = found[0]
    wanted = sum(group.target for group in pool.groups)
    lead = (
        "Google Compute Engine" if first.shortage is Shortage.STOCKOUT else "Insufficient quota to satisfy the request"
    )
    return Failure(
        first.shortage,
        f"{lead}: Not all instances running in IGM after {_go_duration(after_s)}. Expected {wanted}, "
        f"running {running}, transitioning {len(there) - running}. Current errors: [{first.shortage}]: {first.message}",
    )


def _pool_deleted(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    key = operation.pool_key
    if not _has_lasted(cloud, operation, at_s) or not _is_empty(cloud, key):
        return cloud
    pools = {each: pool for each, pool in cloud.pools.items() if each != key}
    return done(replace(cloud, pools=pools), operation, at_s)


def _cluster_deleted(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    cluster = cloud.clusters[operation.cluster]
    if not _has_lasted(cloud, operation, at_s) or not _is_dropped(cloud, cluster):
        return cloud
    pools = {key: pool for key, pool in cloud.pools.items() if key.of != operation.cluster}
    clusters = {key: each for key, each in cloud.clusters.items() if key != operation.cluster}
    return done(replace(cloud, pools=pools, clusters=clusters), operation, at_s)


def _instances_deleted(cloud: Cloud, operation: Operation, at_s: float) -> Cloud:
    region = region_of(operation.zone)
    if _has_lasted(cloud, operation, at_s) and all(is_gone(cloud, node, region) for node in operation.nodes):
        return done(cloud, operation, at_s)
    return cloud


def _is_empty(cloud: Cloud, key: PoolKey) -> bool:
    region = region_of(key.location)
    names = {node.name for node in view.nodes_of(cloud, key)}
    names |= {presence.node for presence in cloud.presences.values() if presence.pool == key}
    return all(is_gone(cloud, name, region) for name in names)


def _is_dropped(cloud: Cloud, cluster: Cluster) -> bool:
    region = cloud.regions.get(cluster.region)
    if region is None or not region.reachable:
        return True
    told = cloud.hosted.get((cluster.region, cluster.called))
    return told is None or not (told.id or told.request)


def _has_lasted(cloud: Cloud, operation: Operation, at_s: float) -> bool:
    return at_s >= operation.started_s + cloud.rules.operation_s


def _given_up(cloud: Cloud, operation: Operation, since_s: float, at_s: float) -> Cloud:
    if at_s < since_s + cloud.rules.give_up_s:
        return cloud
    message = f"Timed out after {_go_duration(at_s - operation.started_s)}: not all components are healthy."
    return done(cloud, operation, at_s, Failure(None, message))


def done(cloud: Cloud, operation: Operation, at_s: float, failure: Failure | None = None) -> Cloud:
    ended = replace(operation, done_s=at_s, failed=failure)
    cloud = replace(cloud, operations={**cloud.operations, operation.name: ended})
    pool = cloud.pools.get(operation.pool_key)
    if operation.kind in (Kind.CREATE_POOL, Kind.RESIZE_POOL) and pool is not None:
        cloud = _with_trouble(cloud, pool, _trouble(cloud, pool, operation, failure))
    cluster = cloud.clusters.get(operation.cluster)
    if operation.kind is Kind.CREATE_CLUSTER and cluster is not None and failure is not None:
        cloud = replace(cloud, clusters={**cloud.clusters, cluster.key: replace(cluster, failed=failure)})
    return cloud


def _trouble(cloud: Cloud, pool: Pool, operation: Operation, failure: Failure | None) -> Trouble | None:
    if failure is None:
        return None
    has_nodes = any(is_running(cloud, node) for node in members(cloud, pool.key))
    return Trouble(failure, is_unusable=operation.kind is Kind.CREATE_POOL and not has_nodes)


def _healed(cloud: Cloud, at_s: float) -> Cloud:
    """GKE takes back what it said of a pool long after its nodes came."""
    for pool in cloud.pools.values():
        trouble = pool.trouble
        if trouble is None or not is_full(cloud, pool):
            continue
        healed_s = at_s if trouble.healed_s is None else trouble.healed_s
        is_over = at_s >= healed_s + cloud.rules.sticky_error_s
        cloud = _with_trouble(cloud, pool, None if is_over else replace(trouble, healed_s=healed_s))
    return cloud


def _with_trouble(cloud: Cloud, pool: Pool, trouble: Trouble | None) -> Cloud:
    if trouble == pool.trouble:
        return cloud
    return replace(cloud, pools={**cloud.pools, pool.key: replace(pool, trouble=trouble)})


def _recovered(cloud: Cloud) -> Cloud:
    """A cluster that came to life late is none the worse for it."""
    for cluster in cloud.clusters.values():
        if (
            cluster.failed
            and cluster.endpoint
            and all(is_full(cloud, pool) for pool in view.pools_of(cloud, cluster.key))
        ):
            cloud = replace(cloud, clusters={**cloud.clusters, cluster.key: replace(cluster, failed=None)})
    return cloud


def _bounded(cloud: Cloud) -> Cloud:
    done: list[OperationName] = [each.name for each in cloud.operations.values() if each.is_done]
    if len(done) <= DONE_KEPT:
        return cloud
    old = set(done[: len(done) - DONE_KEPT])
    return replace(cloud, operations={name: each for name, each in cloud.operations.items() if name not in old})


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.3f}s" if minutes else f"{rest:.3f}s"
