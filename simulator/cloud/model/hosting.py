"""Requests to the regions: the difference between the cloud's state and what the regions have confirmed.

Each cluster or node has at most one request under way, so a region never gets a node's second instance before the end
of the first. A failed request is retried with backoff. A region that does not answer gets no requests.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from simulator.cloud.model.effects import (
    AnnounceMaintenance,
    DrainNode,
    DropCluster,
    HostCluster,
    PlaceNode,
    RegionRequest,
    RemoveNode,
    SilenceNode,
    TellRegion,
    WarnNode,
)
from simulator.cloud.model.events import RegionFailed, RegionObeyed, RegionSeen
from simulator.cloud.model.machines import GPU
from simulator.cloud.model.names import InstanceId, region_of
from simulator.cloud.model.spot import end
from simulator.cloud.model.state import Cloud, Cluster, Node, Pool, Region, RegionNode, Reported, Taint, TaintEffect

DRAIN_LOOK_S = 0.5
"""Seconds between two checks whether a node is drained."""
RETRY_FIRST_S = 0.2
RETRY_MOST_S = 5.0
LEFTOVER = "leftover"
"""Stands for the uid of a cluster that a region has and this cloud did not create."""
_GPU_TAINT = Taint("nvidia.com/gpu", "present", TaintEffect.NO_SCHEDULE)


def tell_regions(cloud: Cloud, at_s: float) -> tuple[Cloud, tuple[TellRegion, ...]]:
    cloud = _with_region_nodes(cloud, at_s)
    effects = tuple(
        TellRegion(cloud.requests + number, request) for number, request in enumerate(_requests(cloud, at_s), start=1)
    )
    for effect in effects:
        cloud = _noting(cloud, effect.request, replace(_reported(cloud, effect.request), request=effect.number))
    return replace(cloud, requests=cloud.requests + len(effects)), effects


def obeyed(cloud: Cloud, event: RegionObeyed) -> Cloud:
    request = event.request
    reported = _reported(cloud, request)
    if reported.request != event.number:
        return cloud
    match request:
        case HostCluster():
            cluster = cloud.clusters.get(request.key)
            if cluster is not None and cluster.uid == request.uid:
                reached = replace(cluster, endpoint=event.endpoint, ca=event.ca)
                cloud = replace(cloud, clusters={**cloud.clusters, request.key: reached})
            return _noting(cloud, request, Reported(request.uid))
        case DropCluster():
            return _nodes_lost(_noting(cloud, request, Reported()), request.region, request.name_in_region)
        case PlaceNode():
            cloud = _noting(cloud, request, Reported(request.instance))
            known_node = cloud.region_nodes[request.node]
            is_noticed = known_node.notice is not None and known_node.notice.instance == request.instance
            fresh = known_node if is_noticed else replace(known_node, notice=None, notice_reported=False)
            return replace(cloud, region_nodes={**cloud.region_nodes, request.node: fresh})
        case WarnNode():
            cloud = _noting(cloud, request, Reported(reported.id))
            warned = replace(cloud.region_nodes[request.node], notice_reported=True)
            return replace(cloud, region_nodes={**cloud.region_nodes, request.node: warned})
        case DrainNode():
            retry_at_s = 0.0 if event.drained else event.at_s + DRAIN_LOOK_S
            cloud = _noting(cloud, request, Reported(reported.id, retry_at_s=retry_at_s))
            if not event.drained:
                return cloud
            drained = replace(cloud.region_nodes[request.node], drained=InstanceId(reported.id))
            return replace(cloud, region_nodes={**cloud.region_nodes, request.node: drained})
        case AnnounceMaintenance():
            cloud = _noting(cloud, request, Reported(reported.id))
            announced = replace(cloud.region_nodes[request.node], announced=request.instance)
            return replace(cloud, region_nodes={**cloud.region_nodes, request.node: announced})
        case SilenceNode():
            cloud = _noting(cloud, request, Reported(reported.id))
            silenced = request.instance if request.silent else None
            heard = replace(cloud.region_nodes[request.node], silenced=silenced)
            return replace(cloud, region_nodes={**cloud.region_nodes, request.node: heard})
        case RemoveNode():
            return _noting(cloud, request, Reported())
        case _:
            assert_never(request)


def failed(cloud: Cloud, event: RegionFailed) -> Cloud:
    reported = _reported(cloud, event.request)
    if reported.request != event.number:
        return cloud
    wait_s = min(RETRY_MOST_S, RETRY_FIRST_S * 2.0 ** min(reported.failures, 10))
    again = Reported(reported.id, failures=reported.failures + 1, retry_at_s=event.at_s + wait_s)
    return _noting(cloud, event.request, again)


def seen(cloud: Cloud, event: RegionSeen) -> Cloud:
    """Learns of a region: a restarted one has lost its clusters and nodes, a new one may have leftover clusters."""
    known = cloud.regions.get(event.region, Region(event.region))
    now = Region(event.region, event.incarnation, reachable=True)
    cloud = replace(cloud, regions={**cloud.regions, event.region: now})
    if known.incarnation == event.incarnation:
        return cloud
    hosted = {place: reported for place, reported in cloud.hosted.items() if place[0] != event.region}
    hosted |= {(event.region, name_in_region): Reported(LEFTOVER) for name_in_region in event.clusters}
    cloud = replace(cloud, hosted=hosted)
    for known_node in list(cloud.region_nodes.values()):
        if region_of(known_node.pool.location) == event.region:
            cloud = _node_lost(cloud, known_node, event.at_s)
    return cloud


def wake_times(cloud: Cloud) -> Iterator[float]:
    yield from (reported.retry_at_s for reported in cloud.hosted.values())
    for known_node in cloud.region_nodes.values():
        yield known_node.reported.retry_at_s
        yield known_node.forget_at_s


def _requests(cloud: Cloud, at_s: float) -> Iterator[RegionRequest]:
    wanted = {(each.region, each.name_in_region): each for each in cloud.clusters.values() if not each.deleting}
    for place in sorted({*cloud.hosted, *wanted}):
        region, name_in_region = place
        reported = cloud.hosted.get(place, Reported())
        cluster = wanted.get(place)
        if not _may_ask(cloud, region, reported, at_s):
            continue
        if reported.id and (cluster is None or cluster.uid != reported.id):
            yield DropCluster(region, name_in_region)
        elif cluster is not None and not reported.id and cluster.up_s <= at_s:
            yield HostCluster(region, name_in_region, cluster.key, cluster.uid, cluster.authorized_networks)
    hosted = {each.key: each for place, each in wanted.items() if cloud.hosted.get(place, Reported()).id == each.uid}
    for known_node in cloud.region_nodes.values():
        cluster = hosted.get(known_node.pool.of)
        if cluster is not None and _may_ask(cloud, cluster.region, known_node.reported, at_s):
            yield from _node_requests(cloud, cluster, known_node, at_s)


def _node_requests(cloud: Cloud, cluster: Cluster, known_node: RegionNode, at_s: float) -> Iterator[RegionRequest]:
    node = cloud.nodes.get(known_node.node)
    instance = None if node is None else node.instance
    reported, notice = known_node.reported, known_node.notice
    is_current = instance is not None and instance.id == reported.id
    is_due = instance is not None and instance.ready_s <= at_s and not instance.is_noticed
    if notice is not None and not known_node.notice_reported and reported.id == notice.instance:
        left_s = max(0.0, notice.notice_s - (at_s - notice.at_s))
        yield WarnNode(cluster.region, cluster.name_in_region, known_node.node, left_s)
    elif reported.id and not is_current and (is_due or at_s >= known_node.forget_at_s):
        yield RemoveNode(cluster.region, cluster.name_in_region, known_node.node)
    elif node is not None and instance is not None and not reported.id and is_due:
        yield _placing(cluster, cloud.pools[node.pool], node, instance.id)
    elif node is not None and instance is not None and is_current and not instance.is_noticed:
        is_silent = known_node.silenced == instance.id
        if is_silent != (node.unready_since_s is not None):
            yield SilenceNode(cluster.region, cluster.name_in_region, node.name, instance.id, not is_silent)
        elif instance.stops_s < math.inf and known_node.announced != instance.id:
            yield AnnounceMaintenance(cluster.region, cluster.name_in_region, node.name, instance.id)
        elif node.drain_began_s is not None and known_node.drained != instance.id:
            yield DrainNode(cluster.region, cluster.name_in_region, node.name)


def _placing(cluster: Cluster, pool: Pool, node: Node, instance: InstanceId) -> PlaceNode:
    spec = pool.spec
    capacity = {"cpu": str(spec.machine.vcpus), "memory": f"{spec.machine.memory_mib}Mi", "pods": "110"}
    labels = {
        **spec.labels,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": node.name,
        "node.kubernetes.io/instance-type": spec.machine.name,
        "topology.kubernetes.io/region": cluster.region,
        "topology.kubernetes.io/zone": node.zone,
        "cloud.google.com/gke-nodepool": pool.key.pool,
        "cloud.google.com/machine-family": spec.machine.name.partition("-")[0],
    }
    taints = spec.taints
    if spec.spot:
        labels |= {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}
    else:
        labels |= {"cloud.google.com/gke-provisioning": "standard"}
    if spec.accelerator:
        labels["cloud.google.com/gke-accelerator"] = spec.accelerator
        capacity[GPU] = str(spec.accelerators)
        taints = taints if any(taint.key == _GPU_TAINT.key for taint in taints) else (*taints, _GPU_TAINT)
    return PlaceNode(
        region=cluster.region,
        name_in_region=cluster.name_in_region,
        node=node.name,
        instance=instance,
        project=pool.key.project,
        zone=node.zone,
        labels=labels,
        taints=taints,
        capacity=capacity,
        shutdown_grace_s=spec.shutdown_grace_s,
        service_account=spec.service_account,
    )


def _with_region_nodes(cloud: Cloud, at_s: float) -> Cloud:
    """Adds each node whose instance is ready; removes those that neither cloud nor region has."""
    region_nodes = {
        name: known_node
        for name, known_node in cloud.region_nodes.items()
        if name in cloud.nodes
        or ((known_node.reported.id or known_node.reported.request) and known_node.pool.of in cloud.clusters)
    }
    for node in cloud.nodes.values():
        if node.name not in region_nodes and node.instance is not None and node.instance.ready_s <= at_s:
            region_nodes[node.name] = RegionNode(node.name, node.pool)
    places = {(each.region, each.name_in_region) for each in cloud.clusters.values() if not each.deleting}
    hosted = {
        place: reported
        for place, reported in cloud.hosted.items()
        if place in places or reported.id or reported.request
    }
    return replace(cloud, region_nodes=region_nodes, hosted=hosted)


def _nodes_lost(cloud: Cloud, region: str, name_in_region: str) -> Cloud:
    """Forgets the nodes of a cluster that the region has dropped."""
    for known_node in list(cloud.region_nodes.values()):
        cluster = cloud.clusters.get(known_node.pool.of)
        if cluster is None or (cluster.region, cluster.name_in_region) == (region, name_in_region):
            nothing = replace(known_node, reported=Reported(), notice=None, notice_reported=False)
            cloud = replace(cloud, region_nodes={**cloud.region_nodes, known_node.node: nothing})
    return cloud


def _node_lost(cloud: Cloud, known_node: RegionNode, at_s: float) -> Cloud:
    """Ends a node's machine, which ended with its region; its group will request another."""
    node = cloud.nodes.get(known_node.node)
    region_nodes = {name: each for name, each in cloud.region_nodes.items() if name != known_node.node}
    was_there = node is not None and node.instance is not None and node.instance.id == known_node.reported.id
    cloud = replace(cloud, region_nodes=region_nodes)
    return end(cloud, node, at_s) if node is not None and was_there else cloud


def _may_ask(cloud: Cloud, region: str, reported: Reported, at_s: float) -> bool:
    known = cloud.regions.get(region)
    return known is not None and known.reachable and reported.request == 0 and reported.retry_at_s <= at_s


def _reported(cloud: Cloud, request: RegionRequest) -> Reported:
    if isinstance(request, HostCluster | DropCluster):
        return cloud.hosted.get((request.region, request.name_in_region), Reported())
    known_node = cloud.region_nodes.get(request.node)
    return Reported() if known_node is None else known_node.reported


def _noting(cloud: Cloud, request: RegionRequest, reported: Reported) -> Cloud:
    if isinstance(request, HostCluster | DropCluster):
        return replace(cloud, hosted={**cloud.hosted, (request.region, request.name_in_region): reported})
    known_node = replace(cloud.region_nodes[request.node], reported=reported)
    return replace(cloud, region_nodes={**cloud.region_nodes, request.node: known_node})
