"""What the regions have to be told, from the difference between what there is and what they have confirmed.

One request at a time for each thing, so that a region never hears of a node's second life before the end of its first.
A request that failed is made again, later and later. Nothing is sent to a region that does not answer.
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
from simulator.cloud.model.state import Cloud, Cluster, Node, Pool, Presence, Region, Taint, TaintEffect, Told

DRAIN_LOOK_S = 0.5
"""Between two looks at whether a node is drained."""
RETRY_FIRST_S = 0.2
RETRY_MOST_S = 5.0
LEFTOVER = "leftover"
"""Stands for the uid of a cluster that a region has and this cloud never made."""
_GPU_TAINT = Taint("nvidia.com/gpu", "present", TaintEffect.NO_SCHEDULE)


def tell_regions(cloud: Cloud, at_s: float) -> tuple[Cloud, tuple[TellRegion, ...]]:
    cloud = _with_presences(cloud, at_s)
    effects = tuple(
        TellRegion(cloud.requests + number, request) for number, request in enumerate(_requests(cloud, at_s), start=1)
    )
    for effect in effects:
        cloud = _noting(cloud, effect.request, replace(_told(cloud, effect.request), request=effect.number))
    return replace(cloud, requests=cloud.requests + len(effects)), effects


def obeyed(cloud: Cloud, event: RegionObeyed) -> Cloud:
    request = event.request
    told = _told(cloud, request)
    if told.request != event.number:
        return cloud
    match request:
        case HostCluster():
            cluster = cloud.clusters.get(request.key)
            if cluster is not None and cluster.uid == request.uid:
                reached = replace(cluster, endpoint=event.endpoint, ca=event.ca)
                cloud = replace(cloud, clusters={**cloud.clusters, request.key: reached})
            return _noting(cloud, request, Told(request.uid))
        case DropCluster():
            return _nodes_lost(_noting(cloud, request, Told()), request.region, request.called)
        case PlaceNode():
            cloud = _noting(cloud, request, Told(request.instance))
            presence = cloud.presences[request.node]
            is_doomed = presence.doom is not None and presence.doom.instance == request.instance
            fresh = presence if is_doomed else replace(presence, doom=None, doom_told=False)
            return replace(cloud, presences={**cloud.presences, request.node: fresh})
        case WarnNode():
            cloud = _noting(cloud, request, Told(told.id))
            warned = replace(cloud.presences[request.node], doom_told=True)
            return replace(cloud, presences={**cloud.presences, request.node: warned})
        case DrainNode():
            left_s = 0.0 if event.drained else event.at_s + DRAIN_LOOK_S
            cloud = _noting(cloud, request, Told(told.id, retry_s=left_s))
            if not event.drained:
                return cloud
            drained = replace(cloud.presences[request.node], drained=InstanceId(told.id))
            return replace(cloud, presences={**cloud.presences, request.node: drained})
        case AnnounceMaintenance():
            cloud = _noting(cloud, request, Told(told.id))
            announced = replace(cloud.presences[request.node], announced=request.instance)
            return replace(cloud, presences={**cloud.presences, request.node: announced})
        case SilenceNode():
            cloud = _noting(cloud, request, Told(told.id))
            silenced = request.instance if request.silent else None
            heard = replace(cloud.presences[request.node], silenced=silenced)
            return replace(cloud, presences={**cloud.presences, request.node: heard})
        case RemoveNode():
            return _noting(cloud, request, Told())
        case _:
            assert_never(request)


def failed(cloud: Cloud, event: RegionFailed) -> Cloud:
    told = _told(cloud, event.request)
    if told.request != event.number:
        return cloud
    wait_s = min(RETRY_MOST_S, RETRY_FIRST_S * 2.0 ** min(told.failures, 10))
    again = Told(told.id, failures=told.failures + 1, retry_s=event.at_s + wait_s)
    return _noting(cloud, event.request, again)


def seen(cloud: Cloud, event: RegionSeen) -> Cloud:
    """One that was started anew has nothing of what it was told; one seen for the first time may have leftovers."""
    known = cloud.regions.get(event.region, Region(event.region))
    now = Region(event.region, event.incarnation, reachable=True)
    cloud = replace(cloud, regions={**cloud.regions, event.region: now})
    if known.incarnation == event.incarnation:
        return cloud
    hosted = {place: told for place, told in cloud.hosted.items() if place[0] != event.region}
    hosted |= {(event.region, called): Told(LEFTOVER) for called in event.clusters}
    cloud = replace(cloud, hosted=hosted)
    for presence in list(cloud.presences.values()):
        if region_of(presence.pool.location) == event.region:
            cloud = _node_lost(cloud, presence, event.at_s)
    return cloud


def wake_times(cloud: Cloud) -> Iterator[float]:
    yield from (told.retry_s for told in cloud.hosted.values())
    for presence in cloud.presences.values():
        yield presence.told.retry_s
        yield presence.forget_s


def _requests(cloud: Cloud, at_s: float) -> Iterator[RegionRequest]:
    wanted = {(each.region, each.called): each for each in cloud.clusters.values() if not each.deleting}
    for place in sorted({*cloud.hosted, *wanted}):
        region, called = place
        told = cloud.hosted.get(place, Told())
        cluster = wanted.get(place)
        if not _may_ask(cloud, region, told, at_s):
            continue
        if told.id and (cluster is None or cluster.uid != told.id):
            yield DropCluster(region, called)
        elif cluster is not None and not told.id and cluster.up_s <= at_s:
            yield HostCluster(region, called, cluster.key, cluster.uid, cluster.authorized_networks)
    hosted = {each.key: each for place, each in wanted.items() if cloud.hosted.get(place, Told()).id == each.uid}
    for presence in cloud.presences.values():
        cluster = hosted.get(presence.pool.of)
        if cluster is not None and _may_ask(cloud, cluster.region, presence.told, at_s):
            yield from _node_requests(cloud, cluster, presence, at_s)


def _node_requests(cloud: Cloud, cluster: Cluster, presence: Presence, at_s: float) -> Iterator[RegionRequest]:
    node = cloud.nodes.get(presence.node)
    instance = None if node is None else node.instance
    told, doom = presence.told, presence.doom
    is_current = instance is not None and instance.id == told.id
    is_due = instance is not None and instance.ready_s <= at_s and not instance.is_doomed
    if doom is not None and not presence.doom_told and told.id == doom.instance:
        left_s = max(0.0, doom.notice_s - (at_s - doom.at_s))
        yield WarnNode(cluster.region, cluster.called, presence.node, left_s)
    elif told.id and not is_current and (is_due or at_s >= presence.forget_s):
        yield RemoveNode(cluster.region, cluster.called, presence.node)
    elif node is not None and instance is not None and not told.id and is_due:
        yield _placing(cluster, cloud.pools[node.pool], node, instance.id)
    elif node is not None and instance is not None and is_current and not instance.is_doomed:
        is_silent = presence.silenced == instance.id
        if is_silent != (node.unready_s is not None):
            yield SilenceNode(cluster.region, cluster.called, node.name, instance.id, not is_silent)
        elif instance.stops_s < math.inf and presence.announced != instance.id:
            yield AnnounceMaintenance(cluster.region, cluster.called, node.name, instance.id)
        elif node.drain_s is not None and presence.drained != instance.id:
            yield DrainNode(cluster.region, cluster.called, node.name)


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
        called=cluster.called,
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


def _with_presences(cloud: Cloud, at_s: float) -> Cloud:
    """One for each node whose instance is up; none where neither the cloud nor the region has anything any more."""
    presences = {
        name: presence
        for name, presence in cloud.presences.items()
        if name in cloud.nodes or ((presence.told.id or presence.told.request) and presence.pool.of in cloud.clusters)
    }
    for node in cloud.nodes.values():
        if node.name not in presences and node.instance is not None and node.instance.ready_s <= at_s:
            presences[node.name] = Presence(node.name, node.pool)
    places = {(each.region, each.called) for each in cloud.clusters.values() if not each.deleting}
    hosted = {place: told for place, told in cloud.hosted.items() if place in places or told.id or told.request}
    return replace(cloud, presences=presences, hosted=hosted)


def _nodes_lost(cloud: Cloud, region: str, called: str) -> Cloud:
    """The region has dropped the cluster with everything in it."""
    for presence in list(cloud.presences.values()):
        cluster = cloud.clusters.get(presence.pool.of)
        if cluster is None or (cluster.region, cluster.called) == (region, called):
            nothing = replace(presence, told=Told(), doom=None, doom_told=False)
            cloud = replace(cloud, presences={**cloud.presences, presence.node: nothing})
    return cloud


def _node_lost(cloud: Cloud, presence: Presence, at_s: float) -> Cloud:
    """Its machine ended with its region; its group will ask for another."""
    node = cloud.nodes.get(presence.node)
    presences = {name: each for name, each in cloud.presences.items() if name != presence.node}
    was_there = node is not None and node.instance is not None and node.instance.id == presence.told.id
    cloud = replace(cloud, presences=presences)
    return end(cloud, node, at_s) if node is not None and was_there else cloud


def _may_ask(cloud: Cloud, region: str, told: Told, at_s: float) -> bool:
    known = cloud.regions.get(region)
    return known is not None and known.reachable and told.request == 0 and told.retry_s <= at_s


def _told(cloud: Cloud, request: RegionRequest) -> Told:
    if isinstance(request, HostCluster | DropCluster):
        return cloud.hosted.get((request.region, request.called), Told())
    presence = cloud.presences.get(request.node)
    return Told() if presence is None else presence.told


def _noting(cloud: Cloud, request: RegionRequest, told: Told) -> Cloud:
    if isinstance(request, HostCluster | DropCluster):
        return replace(cloud, hosted={**cloud.hosted, (request.region, request.called): told})
    presence = replace(cloud.presences[request.node], told=told)
    return replace(cloud, presences={**cloud.presences, request.node: presence})
