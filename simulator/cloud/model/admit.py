"""Decides on requests with Google's checks, in Google's order. A granted request becomes an operation."""

import re
from dataclasses import replace
from typing import assert_never

from simulator.cloud.model import chance, control, refusals, upkeep, view
from simulator.cloud.model.groups import remove_nodes
from simulator.cloud.model.names import ClusterKey, PoolKey, is_own_name, is_zone, region_of
from simulator.cloud.model.operations import start
from simulator.cloud.model.quotas import Wanted, shortfalls
from simulator.cloud.model.refusals import Refusal
from simulator.cloud.model.requests import (
    CreateCluster,
    CreatePool,
    DeleteCluster,
    DeleteInstances,
    DeletePool,
    Done,
    MaintainHost,
    Outcome,
    PoolWish,
    PreemptNode,
    Request,
    ResizePool,
    SetCapacity,
    SetExclusions,
    SetNodeReady,
    SetPrice,
    SetQuota,
    SetRoles,
    StockOut,
    UpdatePool,
    UpgradePool,
)
from simulator.cloud.model.state import Cloud, Cluster, Group, Kind, Pool

NODES_AT_MOST = 2000
_NAME_RULE = "must be up to 40 letters, digits and hyphens, begin with a letter and end with a letter or digit."


def admit(cloud: Cloud, request: Request, at_s: float) -> tuple[Cloud, Outcome]:
    match request:
        case CreateCluster():
            return _create_cluster(cloud, request, at_s)
        case DeleteCluster():
            return _delete_cluster(cloud, request, at_s)
        case CreatePool():
            return _create_pool(cloud, request, at_s)
        case DeletePool():
            return _delete_pool(cloud, request, at_s)
        case ResizePool():
            return _resize_pool(cloud, request, at_s)
        case UpdatePool():
            return _update_pool(cloud, request, at_s)
        case DeleteInstances():
            return _delete_instances(cloud, request, at_s)
        case SetExclusions():
            return _set_exclusions(cloud, request, at_s)
        case UpgradePool():
            return _upgrade_pool(cloud, request, at_s)
        case (
            PreemptNode()
            | MaintainHost()
            | SetNodeReady()
            | StockOut()
            | SetCapacity()
            | SetPrice()
            | SetQuota()
            | SetRoles()
        ):
            return control.obey(cloud, request, at_s)
        case _:
            assert_never(request)


def _create_cluster(cloud: Cloud, request: CreateCluster, at_s: float) -> tuple[Cloud, Outcome]:
    key = request.key
    region = region_of(key.location)
    refusal = _cluster_refusal(cloud, request, region)
    if refusal is not None:
        return cloud, refusal
    cloud, number = chance.count(cloud)
    taken = {each.name_in_region for each in cloud.clusters.values() if each.region == region}
    cluster = Cluster(
        key=key,
        uid=chance.hexadecimal(cloud, "cluster", number, 32),
        name_in_region=key.cluster if key.cluster not in taken else f"{key.cluster}-{number}",
        created_s=at_s,
        up_s=at_s + cloud.rules.cluster_s,
        zones=request.zones or _default_zones(key.location),
        echo=request.echo,
        exclusions=request.exclusions,
        private_nodes=request.private_nodes,
        authorized_networks=request.authorized_networks,
    )
    cloud = replace(cloud, clusters={**cloud.clusters, key: cluster})
    for wish in request.pools:
        cloud = _with_pool(cloud, cluster, wish, at_s)
    return start(cloud, Kind.CREATE_CLUSTER, key, at_s)


def _cluster_refusal(cloud: Cloud, request: CreateCluster, region: str) -> Refusal | None:
    key = request.key
    if region not in cloud.rules.regions:
        return refusals.no_location(key.location)
    if not is_own_name(key.cluster):
        return refusals.invalid(f'Cluster name "{key.cluster}" {_NAME_RULE}')
    if key in cloud.clusters:
        return refusals.exists(key)
    if not request.pools:
        return refusals.invalid("Cluster.initial_node_count must be greater than zero.")
    names = [wish.name for wish in request.pools]
    if len(set(names)) < len(names):
        return refusals.invalid("Node pool names must be unique within a cluster.")
    zones = request.zones or _default_zones(key.location)
    if not _are_in(zones, region):
        return refusals.invalid(f"Cluster.locations must be zones of {region}.")
    found = (_wish_refusal(key, wish, zones) for wish in request.pools)
    return next((refusal for refusal in found if refusal is not None), None) or _quota_refusal(
        cloud, key.project, [each for wish in request.pools for each in _wanted(wish, zones)]
    )


def _delete_cluster(cloud: Cloud, request: DeleteCluster, at_s: float) -> tuple[Cloud, Outcome]:
    cluster = cloud.clusters.get(request.key)
    if cluster is None:
        return cloud, refusals.no_cluster(request.key)
    for operation in view.under_way(cloud, request.key):
        return cloud, refusals.busy(operation.name)
    cloud = replace(
        cloud,
        clusters={**cloud.clusters, request.key: replace(cluster, deleting=True)},
        pools={
            key: replace(pool, deleting=pool.deleting or key.of == request.key) for key, pool in cloud.pools.items()
        },
    )
    noticed = [node.name for node in cloud.nodes.values() if node.pool.of == request.key]
    return start(remove_nodes(cloud, noticed, at_s, at_once=True), Kind.DELETE_CLUSTER, request.key, at_s)


def _create_pool(cloud: Cloud, request: CreatePool, at_s: float) -> tuple[Cloud, Outcome]:
    cluster = cloud.clusters.get(request.cluster)
    if cluster is None:
        return cloud, refusals.no_cluster(request.cluster)
    key = PoolKey(*request.cluster, request.wish.name)
    refusal = (
        _wish_refusal(request.cluster, request.wish, cluster.zones)
        or (refusals.exists(key) if key in cloud.pools else None)
        or _conflict(cloud, key)
        or _quota_refusal(cloud, key.project, _wanted(request.wish, cluster.zones))
    )
    if refusal is not None:
        return cloud, refusal
    return start(_with_pool(cloud, cluster, request.wish, at_s), Kind.CREATE_POOL, key.of, at_s, key.pool)


def _delete_pool(cloud: Cloud, request: DeletePool, at_s: float) -> tuple[Cloud, Outcome]:
    refusal = _pool_refusal(cloud, request.key)
    if refusal is not None:
        return cloud, refusal
    pool = cloud.pools[request.key]
    cloud = _replacing(cloud, replace(pool, deleting=True))
    noticed = [node.name for node in view.nodes_of(cloud, request.key)]
    cloud = remove_nodes(cloud, noticed, at_s, at_once=True)
    return start(cloud, Kind.DELETE_POOL, pool.key.of, at_s, pool.key.pool)


def _resize_pool(cloud: Cloud, request: ResizePool, at_s: float) -> tuple[Cloud, Outcome]:
    refusal = _pool_refusal(cloud, request.key) or _size_refusal(request.size)
    if refusal is not None:
        return cloud, refusal
    pool = cloud.pools[request.key]
    more = [Wanted(pool.spec, group.zone, max(0, request.size - group.target)) for group in pool.groups]
    refusal = _quota_refusal(cloud, request.key.project, more)
    if refusal is not None:
        return cloud, refusal
    groups = tuple(replace(group, target=request.size) for group in pool.groups)
    cloud = _replacing(cloud, replace(pool, groups=groups, spec=replace(pool.spec, size=request.size)))
    return start(cloud, Kind.RESIZE_POOL, pool.key.of, at_s, pool.key.pool)


def _update_pool(cloud: Cloud, request: UpdatePool, at_s: float) -> tuple[Cloud, Outcome]:
    refusal = _pool_refusal(cloud, request.key)
    if refusal is not None:
        return cloud, refusal
    pool = cloud.pools[request.key]
    cloud = _replacing(cloud, replace(pool, spec=request.spec, echo=request.echo))
    return start(cloud, Kind.UPDATE, pool.key.of, at_s, pool.key.pool)


def _set_exclusions(cloud: Cloud, request: SetExclusions, at_s: float) -> tuple[Cloud, Outcome]:
    cluster = cloud.clusters.get(request.key)
    if cluster is None:
        return cloud, refusals.no_cluster(request.key)
    for operation in view.under_way(cloud, request.key):
        return cloud, refusals.busy(operation.name)
    changed = replace(cluster, exclusions=request.exclusions, echo=request.echo)
    return start(replace(cloud, clusters={**cloud.clusters, cluster.key: changed}), Kind.UPDATE, cluster.key, at_s)


def _upgrade_pool(cloud: Cloud, request: UpgradePool, at_s: float) -> tuple[Cloud, Outcome]:
    refusal = _pool_refusal(cloud, request.key)
    if refusal is None and upkeep.is_excluded(cloud, request.key, at_s) and not request.forced:
        refusal = refusals.excluded(request.key)
    if refusal is not None:
        return cloud, refusal
    return upkeep.begin_upgrade(cloud, cloud.pools[request.key], at_s), Done()


def _delete_instances(cloud: Cloud, request: DeleteInstances, at_s: float) -> tuple[Cloud, Outcome]:
    what = f"projects/{request.project}/zones/{request.zone}/instanceGroupManagers/{request.group}"
    pool = _pool_of_group(cloud, request)
    if pool is None:
        return cloud, refusals.no_resource(what)
    there = {node.name for node in view.members(cloud, pool.key, request.zone)}
    strangers = [name for name in request.nodes if name not in there]
    if (strangers and not request.skip_strangers) or not request.nodes:
        named = f"instances/{strangers[0]}" if strangers else "instances"
        return cloud, refusals.invalid(
            f"Invalid value for field 'instances': '{named}'. Instance is not a member of '{request.group}'."
        )
    names = tuple(dict.fromkeys(name for name in request.nodes if name in there))
    groups = tuple(
        replace(group, target=max(0, group.target - len(names))) if group.zone == request.zone else group
        for group in pool.groups
    )
    cloud = remove_nodes(_replacing(cloud, replace(pool, groups=groups)), names, at_s)
    return start(cloud, Kind.DELETE_INSTANCES, pool.key.of, at_s, pool.key.pool, request.zone, names)


def _pool_of_group(cloud: Cloud, request: DeleteInstances) -> Pool | None:
    for pool in cloud.pools.values():
        group = pool.group(request.zone)
        if pool.key.project == request.project and group is not None and group.name == request.group:
            return None if pool.deleting else pool
    return None


def _wish_refusal(cluster: ClusterKey, wish: PoolWish, zones: tuple[str, ...]) -> Refusal | None:
    if not is_own_name(wish.name):
        return refusals.invalid(f'Node pool name "{wish.name}" {_NAME_RULE}')
    region = region_of(cluster.location)
    wanted = wish.spec.zones or zones
    if not _are_in(wanted, region):
        return refusals.invalid(f"NodePool.locations must be zones of {region}, got {', '.join(wanted)}.")
    return _size_refusal(wish.spec.size)


def _wanted(wish: PoolWish, zones: tuple[str, ...]) -> list[Wanted]:
    return [Wanted(wish.spec, zone, wish.spec.size) for zone in wish.spec.zones or zones]


def _quota_refusal(cloud: Cloud, project: str, wanted: list[Wanted]) -> Refusal | None:
    """Refuses the whole request if any quota is too small."""
    short = shortfalls(cloud, project, wanted)
    return refusals.short_of_quota(project, short) if short else None


def _size_refusal(size: int) -> Refusal | None:
    if 0 <= size <= NODES_AT_MOST:
        return None
    return refusals.invalid(f"Invalid value for field 'node_count': {size}. Must be from 0 to {NODES_AT_MOST}.")


def _pool_refusal(cloud: Cloud, key: PoolKey) -> Refusal | None:
    if key.of not in cloud.clusters:
        return refusals.no_cluster(key.of)
    if key not in cloud.pools:
        return refusals.no_pool(key)
    return _conflict(cloud, key)


def _conflict(cloud: Cloud, key: PoolKey) -> Refusal | None:
    """GKE runs one operation at a time on a pool, a few on a cluster, and none beside one on the cluster itself."""
    running = list(view.under_way(cloud, key.of))
    for operation in running:
        if operation.pool in ("", key.pool):
            return refusals.busy(operation.name)
    if len(running) >= cloud.rules.operations_at_once:
        return refusals.too_many_operations(key.of, cloud.rules.operations_at_once)
    return None


def _with_pool(cloud: Cloud, cluster: Cluster, wish: PoolWish, at_s: float) -> Cloud:
    cloud, number = chance.count(cloud)
    zones = wish.spec.zones or cluster.zones
    key = PoolKey(*cluster.key, wish.name)
    stem = re.sub("-+$", "", cluster.key.cluster[:20]), re.sub("-+$", "", wish.name[:20])
    groups = tuple(
        Group(f"gke-{stem[0]}-{stem[1]}-{chance.hexadecimal(cloud, zone, number)}-grp", zone, wish.spec.size)
        for zone in zones
    )
    uid = chance.hexadecimal(cloud, "pool", number)
    pool = Pool(key, uid, replace(wish.spec, zones=zones), groups, wish.echo, version_s=at_s)
    return _replacing(cloud, replace(pool, grouped_s=at_s + cloud.rules.group_s))


def _replacing(cloud: Cloud, pool: Pool) -> Cloud:
    return replace(cloud, pools={**cloud.pools, pool.key: pool})


def _are_in(zones: tuple[str, ...], region: str) -> bool:
    return bool(zones) and all(is_zone(zone) and region_of(zone) == region for zone in zones)


def _default_zones(location: str) -> tuple[str, ...]:
    return (location,) if is_zone(location) else tuple(f"{location}-{letter}" for letter in "abc")
