"""What the fleet file means for each part: plans for the cloud, offers for the allocator, manifests for clusters."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from controlplane.allocator.offers import Offer
from controlplane.bootstrap.settings import BootstrapSettings, Place
from controlplane.catalog.places import region_of
from controlplane.clouds.gke.settings import ENVIRONMENT_PREFIX, GkeSettings
from controlplane.clouds.interface import ClusterPlan, PoolPlan, Taint
from controlplane.fleet.spec import GOOGLE, ClusterSpec, Fleet
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL
from runtime.settings import read_settings


def gke_settings(fleet: Fleet, environ: Mapping[str, str]) -> GkeSettings:
    """The environment goes before the file, so that one file serves here and there."""
    cloud = fleet.cloud
    told: dict[str, object] = {
        "project": cloud.project,
        "endpoint": cloud.endpoints.gke,
        "insecure": cloud.endpoints.insecure,
        "compute_url": cloud.endpoints.compute,
        "market_url": cloud.endpoints.market or "",
        "credentials_file": cloud.credentials,
        "locations": tuple(dict.fromkeys(cluster.location for cluster in fleet.clusters)),
    }
    flags = {name: value for name, value in told.items() if not environ.get(f"{ENVIRONMENT_PREFIX}{name.upper()}")}
    return read_settings(GkeSettings, environ, flags, ENVIRONMENT_PREFIX)


def is_in_google(fleet: Fleet, environ: Mapping[str, str]) -> bool:
    """Rather than with a stand-in."""
    return gke_settings(fleet, environ).endpoint == GOOGLE.endpoint


def cluster_plans(fleet: Fleet) -> tuple[ClusterPlan, ...]:
    return tuple(_cluster_plan(fleet, cluster) for cluster in fleet.clusters)


def _cluster_plan(fleet: Fleet, cluster: ClusterSpec) -> ClusterPlan:
    system = fleet.system_pool
    return ClusterPlan(
        name=ClusterName(cluster.name),
        location=cluster.location,
        system_machine_type=system.machine_type,
        system_size=system.size,
        network=fleet.network,
        subnetwork=cluster.subnetwork or fleet.subnetwork,
        labels=_labels(fleet),
        release_channel=fleet.release_channel,
        pod_range=cluster.pod_range,
        service_range=cluster.service_range,
        tags=fleet.nodes.tags,
        system_zone=cluster.zones[0],
        system_disk_gb=system.disk.size_gb,
        system_disk_type=system.disk.type,
        service_account=fleet.nodes.service_account,
        private_nodes=fleet.nodes.private,
        authorized_networks=fleet.authorized_networks,
    )


def complete(fleet: Fleet, plan: PoolPlan, lease: Mapping[str, str]) -> PoolPlan:
    """The plan of a pool with all that its nodes have in common with the others of the fleet; `lease`: its labels."""
    nodes = fleet.nodes
    return replace(
        plan,
        disk_gb=nodes.disk.size_gb,
        disk_type=nodes.disk.type,
        labels={**_labels(fleet), **plan.labels, **lease},
        taints=(*plan.taints, *(Taint(taint.key, taint.value, taint.effect) for taint in nodes.taints)),
        driver=nodes.driver,
        workload_identity=nodes.workload_identity,
        shutdown_grace_s=nodes.shutdown_grace_s,
        tags=nodes.tags,
        service_account=nodes.service_account,
        private=nodes.private,
        image_streaming=nodes.image_streaming,
    )


def offers(fleet: Fleet) -> tuple[Offer, ...]:
    """Most wanted first."""
    return tuple(
        Offer(
            cluster=ClusterName(each.cluster),
            zone=each.zone,
            machine_type=each.machine_type,
            max_nodes=each.max_nodes,
            accelerator=each.accelerator,
            accelerators_per_node=(each.per_node or 1) if each.accelerator is not None else 0,
            spot=each.spot,
        )
        for each in fleet.offers
    )


def places(fleet: Fleet) -> tuple[Place, ...]:
    return tuple(
        Place(ClusterName(cluster.name), cluster.region or region_of(cluster.location)) for cluster in fleet.clusters
    )


def bootstrap_settings(fleet: Fleet) -> BootstrapSettings:
    told = {
        "fleet": fleet.name,
        "node_taints": tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in fleet.nodes.taints),
        "shutdown_grace_s": fleet.nodes.shutdown_grace_s,
        **msgspec.structs.asdict(fleet.pods),
    }
    return msgspec.convert(told, BootstrapSettings)


def _labels(fleet: Fleet) -> dict[str, str]:
    return {**fleet.labels, FLEET_LABEL: fleet.name}
