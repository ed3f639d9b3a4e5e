"""When an operation ends, and with which result.

An operation that cannot get its instances ends with an error after a while. The pool or cluster exists all the same,
and its groups keep trying: the end of an operation does not mean that the nodes are there.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from simulator.cloud.model import chance, view
from simulator.cloud.model.names import ClusterKey, NodeName, OperationName, PoolKey, region_of
from simulator.cloud.model.requests import Started
from simulator.cloud.model.state import Cloud, Cluster, Failure, Kind, Operation, Pool, Shortage, StatusError
from simulator.cloud.model.view import is_full, is_gone, is_running, members

MAX_DONE = 1000


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
    return _old_errors_cleared(_recovered(_bounded(cloud)), at_s)


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
    filled = cloud.pools.get(PoolKey(*cluster, pool))
    expects = sum(group.target for group in filled.groups) if filled is not None else 0
    operation = Operation(name, kind, cluster, at_s, pool, zone, tuple(nodes), expects)
    return replace(cloud, operations={**cloud.operations, name: operation}), Started(name)


def wake_times(cloud: Cloud) -> Iterator[float]:
    rules = cloud.rules
    for pool in cloud.pools.values():
        if pool.status_error is not None and pool.status_error.recovered_at_s is not None:
            yield pool.status_error.recovered_at_s + rules.sticky_error_s
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
        return _abandoned(cloud, operation, cluster.up_s, at_s)
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
    return _abandoned(cloud, operation, since_s, at_s)


def shortage_of(cloud: Cloud, pool: Pool, after_s: float, since_s: float = math.inf) -> Failure | None:
    """GKE's message about a pool whose nodes are refused instances now, or were since `since_s`."""
    now = [failure for _, failure in view.failures(cloud, pool.key)]
    found = now or [error.why for error in pool.errors if error.at_s >= since_s]
    if not found:
        return None
    there = members(cloud, pool.key)
    running = sum(is_running(cloud, node) for node in there)
    wanted = sum(group.target for group in pool.groups)
    message = not_all_running(found[0], after_s, wanted=wanted, running=running, missing=len(there) - running)
    return Failure(found[0].shortage, message)


def not_all_running(first: Failure, after_s: float, *, wanted: int, running: int, missing: int) -> str:
    lead = (
        "Google Compute Engine" if first.shortage is Shortage.STOCKOUT else "Insufficient quota to satisfy the request"
    )
    return (
        f"{lead}: Not all instances running in IGM after {_go_duration(after_s)}. Expected {wanted}, "
        f"running {running}, transitioning {missing}. Current errors: [{first.shortage}]: {first.message}"
    )


def timed_out(after_s: float) -> str:
    return f"Timed out after {_go_duration(after_s)}: not all components are healthy."


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
    names |= {known_node.node for known_node in cloud.region_nodes.values() if known_node.pool == key}
    return all(is_gone(cloud, name, region) for name in names)


def _is_dropped(cloud: Cloud, cluster: Cluster) -> bool:
    region = cloud.regions.get(cluster.region)
    if region is None or not region.reachable:
        return True
    reported = cloud.hosted.get((cluster.region, cluster.name_in_region))
    return reported is None or not (reported.id or reported.request)


def _has_lasted(cloud: Cloud, operation: Operation, at_s: float) -> bool:
    return at_s >= operation.started_s + cloud.rules.operation_s


def _abandoned(cloud: Cloud, operation: Operation, since_s: float, at_s: float) -> Cloud:
    if at_s < since_s + cloud.rules.give_up_s:
        return cloud
    return done(cloud, operation, at_s, Failure(None, timed_out(at_s - operation.started_s)))


def done(cloud: Cloud, operation: Operation, at_s: float, failure: Failure | None = None) -> Cloud:
    ended = replace(operation, done_s=at_s, failed=failure)
    cloud = replace(cloud, operations={**cloud.operations, operation.name: ended})
    pool = cloud.pools.get(operation.pool_key)
    if operation.kind in (Kind.CREATE_POOL, Kind.RESIZE_POOL) and pool is not None:
        cloud = _with_status_error(cloud, pool, _status_error(cloud, pool, operation, failure))
    cluster = cloud.clusters.get(operation.cluster)
    if operation.kind is Kind.CREATE_CLUSTER and cluster is not None and failure is not None:
        cloud = replace(cloud, clusters={**cloud.clusters, cluster.key: replace(cluster, failed=failure)})
    return cloud


def _status_error(cloud: Cloud, pool: Pool, operation: Operation, failure: Failure | None) -> StatusError | None:
    if failure is None:
        return None
    has_nodes = any(is_running(cloud, node) for node in members(cloud, pool.key))
    return StatusError(failure, is_unusable=operation.kind is Kind.CREATE_POOL and not has_nodes)


def _old_errors_cleared(cloud: Cloud, at_s: float) -> Cloud:
    """Clears errors of pools whose nodes have run for `sticky_error_s`."""
    for pool in cloud.pools.values():
        error = pool.status_error
        if error is None or not is_full(cloud, pool):
            continue
        recovered_at_s = at_s if error.recovered_at_s is None else error.recovered_at_s
        is_over = at_s >= recovered_at_s + cloud.rules.sticky_error_s
        cloud = _with_status_error(cloud, pool, None if is_over else replace(error, recovered_at_s=recovered_at_s))
    return cloud


def _with_status_error(cloud: Cloud, pool: Pool, error: StatusError | None) -> Cloud:
    if error == pool.status_error:
        return cloud
    return replace(cloud, pools={**cloud.pools, pool.key: replace(pool, status_error=error)})


def _recovered(cloud: Cloud) -> Cloud:
    """Clears the errors of clusters whose nodes came late."""
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
    if len(done) <= MAX_DONE:
        return cloud
    old = set(done[: len(done) - MAX_DONE])
    return replace(cloud, operations={name: each for name, each in cloud.operations.items() if name not in old})


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.3f}s" if minutes else f"{rest:.3f}s"
