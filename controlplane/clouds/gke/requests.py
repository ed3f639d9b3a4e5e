"""Translation of plans into GKE's requests and of GKE's answers into our types. Pure.

Requests are plain data with GKE's field names.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from controlplane.catalog.accelerators import BY_NAME, canonical
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.gke import maintenance
from controlplane.clouds.gke.classify import OperationReport
from controlplane.clouds.gke.enums import name_of
from controlplane.clouds.gke.failures import code_numbered
from controlplane.clouds.gke.node_accounts import advice_on
from controlplane.clouds.gke.settings import GkeConfig, NodeConfig
from controlplane.clouds.interface import (
    ClusterInfo,
    ClusterPlan,
    ClusterStatus,
    KubernetesAccess,
    PoolInfo,
    PoolPlan,
    PoolRef,
    PoolStatus,
    Taint,
)
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL

if TYPE_CHECKING:
    from google.cloud import container_v1

Request = dict[str, Any]

ANYWHERE = "-"
DEFAULT_SHUTDOWN_GRACE_S = 30
"""GKE's default for spot nodes. It is not requested, because requests with this field need a recent GKE version."""
CRITICAL_PODS_S = 15
"""Seconds of a longer grace that are reserved for the system's pods; GKE reserves the same from its default."""

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_RESOURCE_LABEL = re.compile(r"^[a-z][a-z0-9_-]{0,62}\Z")
_RESOURCE_VALUE = re.compile(r"^[a-z0-9_-]{0,63}\Z")
_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
_DRIVERS = {"default": "DEFAULT", "latest": "LATEST", "disabled": "INSTALLATION_DISABLED"}
_GROUP = re.compile(r"projects/([^/]+)/zones/([^/]+)/instanceGroup(?:Manager)?s/([^/?]+)\Z")
_MANAGED: Request = {"auto_upgrade": True, "auto_repair": True}
"""A release channel requires both."""

_UPGRADES: Request = {"max_surge": 0, "max_unavailable": 1}
"""An upgrade creates no extra machines, which the job would pay for and need quota for."""

_CLUSTER_STATUS = {
    "RUNNING": ClusterStatus.RUNNING,
    "RECONCILING": ClusterStatus.RUNNING,
    "DEGRADED": ClusterStatus.RUNNING,
    "STOPPING": ClusterStatus.STOPPING,
    "ERROR": ClusterStatus.ERROR,
}
_POOL_STATUS = {
    "RUNNING": PoolStatus.RUNNING,
    "RECONCILING": PoolStatus.UPDATING,
    "RUNNING_WITH_ERROR": PoolStatus.RUNNING,
    "STOPPING": PoolStatus.STOPPING,
    "ERROR": PoolStatus.ERROR,
}
"""RUNNING_WITH_ERROR does not mean a shortage: the error may be old and remains although all nodes run."""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """The resource in Compute that contains a pool's machines in one zone."""

    project: str
    zone: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolSeen:
    info: PoolInfo
    groups: tuple[InstanceGroup, ...]


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    info: ClusterInfo
    pools: tuple[PoolSeen, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Google's resource names in one project."""

    project: str

    def location(self, location: str) -> str:
        return f"projects/{self.project}/locations/{location}"

    def cluster(self, location: str, cluster: ClusterName) -> str:
        return f"{self.location(location)}/clusters/{cluster}"

    def pool(self, location: str, pool: PoolRef) -> str:
        return f"{self.cluster(location, pool.cluster)}/nodePools/{pool.pool}"

    def operation(self, location: str, operation: str) -> str:
        return f"{self.location(location)}/operations/{operation}"


def create_cluster(names: Names, plan: ClusterPlan, config: GkeConfig, now_unix_s: float) -> Request:
    settings, nodes = config.cluster(plan.name), config.nodes
    ranges = {
        "cluster_secondary_range_name": settings.pod_range,
        "services_secondary_range_name": settings.service_range,
    }
    system: Request = {
        "name": plan.system.name,
        "initial_node_count": plan.system.size,
        "locations": [plan.system.kind.zone],
        "management": _MANAGED,
        "config": {
            "machine_type": plan.system.kind.machine_type,
            "disk_size_gb": config.system_disk_gb,
            "disk_type": config.system_disk_type,
            **_common_config(plan.labels, nodes.tags, nodes.service_account),
            "workload_metadata_config": {"mode": "GKE_METADATA"},
        },
    }
    private: Request = {"network_config": {"default_enable_private_nodes": True}} if nodes.private else {}
    return {
        "parent": names.location(plan.location),
        "cluster": {
            "name": plan.name,
            "network": settings.network,
            "subnetwork": settings.subnetwork,
            "ip_allocation_policy": {
                "use_ip_aliases": True,
                **{field: value for field, value in ranges.items() if value is not None},
            },
            "maintenance_policy": {
                "window": {
                    "maintenance_exclusions": {
                        maintenance.EXCLUSION: maintenance.exclusion(now_unix_s, now_unix_s + plan.protect_s)
                    }
                }
            },
            "release_channel": {"channel": settings.release_channel.upper()},
            "resource_labels": _resource_labels(plan.labels),
            "workload_identity_config": {"workload_pool": f"{names.project}.svc.id.goog"},
            "node_pools": [system],
            **private,
            **_endpoints(settings.authorized_networks),
        },
    }


def create_pool(names: Names, location: str, cluster: ClusterName, plan: PoolPlan, nodes: NodeConfig) -> Request:
    config: Request = {
        "machine_type": plan.kind.machine_type,
        "disk_size_gb": nodes.disk_gb,
        "disk_type": nodes.disk_type,
        **_common_config(plan.labels, nodes.tags, nodes.service_account),
        "spot": plan.kind.spot,
        "taints": [_taint(taint) for taint in plan.taints],
    }
    if nodes.workload_identity:
        config["workload_metadata_config"] = {"mode": "GKE_METADATA"}
    if nodes.image_streaming:
        config["gcfs_config"] = {"enabled": True}
    if plan.kind.accelerator:
        config["accelerators"] = [
            {
                "accelerator_type": accelerator_type(plan.kind.accelerator),
                "accelerator_count": plan.kind.accelerators,
                "gpu_driver_installation_config": {"gpu_driver_version": _DRIVERS[nodes.driver]},
            }
        ]
    if plan.kind.spot and plan.shutdown_grace_s != DEFAULT_SHUTDOWN_GRACE_S:
        config["kubelet_config"] = {
            "shutdown_grace_period_seconds": plan.shutdown_grace_s,
            "shutdown_grace_period_critical_pods_seconds": CRITICAL_PODS_S,
        }
    network: Request = {"network_config": {"enable_private_nodes": True}} if nodes.private else {}
    return {
        "parent": names.cluster(location, cluster),
        "node_pool": {
            **network,
            "name": plan.name,
            "initial_node_count": plan.size,
            "locations": [plan.kind.zone],
            "management": _MANAGED,
            "upgrade_settings": _UPGRADES,
            "config": config,
        },
    }


def accelerator_type(name: str) -> str:
    """GKE's name of an accelerator of the catalog."""
    known = BY_NAME.get(name)
    return known.alias if known is not None else name


def resize_pool(names: Names, location: str, pool: PoolRef, size: int) -> Request:
    return {"name": names.pool(location, pool), "node_count": size}


def _endpoints(networks: Sequence[str]) -> Request:
    """The endpoints of the Kubernetes API. Nodes and pods always reach it; other machines at Google must be listed."""
    if not networks:
        return {}
    authorized: Request = {
        "enabled": True,
        "cidr_blocks": [{"cidr_block": block} for block in networks],
        "gcp_public_cidrs_access_enabled": False,
    }
    addresses: Request = {"enabled": True, "enable_public_endpoint": True, "authorized_networks_config": authorized}
    return {"control_plane_endpoints_config": {"ip_endpoints_config": addresses}}


def _common_config(labels: Mapping[str, str], tags: Sequence[str], service_account: str | None) -> Request:
    common: Request = {
        "labels": dict(labels),
        "resource_labels": _resource_labels(labels),
        "tags": list(tags),
        "oauth_scopes": _SCOPES,
        "metadata": {"disable-legacy-endpoints": "true"},
    }
    return common if service_account is None else common | {"service_account": service_account}


def _resource_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that Compute allows on its resources, where the bill shows them. Kubernetes allows more."""
    return {key: value for key, value in labels.items() if _RESOURCE_LABEL.match(key) and _RESOURCE_VALUE.match(value)}


def _taint(taint: Taint) -> Request:
    return {"key": taint.key, "value": taint.value, "effect": _EFFECTS[taint.effect]}


def clusters_seen(
    answer: "container_v1.ListClustersResponse", locations: Sequence[str], now_unix_s: float
) -> tuple[ClusterSeen, ...]:
    """Clusters at our locations, and clusters elsewhere with our label, which a change of the fleet file left there."""
    return tuple(
        cluster_seen(each, now_unix_s)
        for each in answer.clusters
        if not locations or each.location in locations or FLEET_LABEL in each.resource_labels
    )


def missing_locations(answer: "container_v1.ListClustersResponse", locations: Sequence[str]) -> tuple[str, ...]:
    """Locations that Google could not list."""
    return tuple(zone for zone in answer.missing_zones if not locations or _concerns(zone, locations))


def _concerns(missing: str, locations: Sequence[str]) -> bool:
    return any(location == missing or missing.startswith(f"{location}-") for location in locations)


def cluster_seen(cluster: "container_v1.Cluster", now_unix_s: float) -> ClusterSeen:
    name = ClusterName(cluster.name)
    status = _CLUSTER_STATUS.get(name_of(cluster.status), ClusterStatus.PROVISIONING)
    pools = tuple(pool_seen(name, pool) for pool in cluster.node_pools)
    info = ClusterInfo(
        name=name,
        location=cluster.location,
        ready=status is ClusterStatus.RUNNING and bool(cluster.endpoint),
        labels=dict(cluster.resource_labels),
        pools=tuple(pool.info for pool in pools),
        detail=_detail(cluster.status_message, cluster.conditions),
        advice=advice_on(cluster),
        status=status,
        protected_until=maintenance.excluded_until(cluster.maintenance_policy, now_unix_s),
    )
    return ClusterSeen(info, pools)


def pool_seen(cluster: ClusterName, pool: "container_v1.NodePool") -> PoolSeen:
    accelerator = next(iter(pool.config.accelerators), None)
    groups = tuple(InstanceGroup(*found.groups()) for url in pool.instance_group_urls if (found := _GROUP.search(url)))
    info = PoolInfo(
        ref=PoolRef(cluster, pool.name),
        kind=MachineKind(
            next(iter(pool.locations), ""),
            pool.config.machine_type,
            canonical(accelerator.accelerator_type) if accelerator is not None else "",
            accelerator.accelerator_count if accelerator is not None else 0,
            pool.config.spot,
        ),
        size=pool.initial_node_count,
        status=_pool_status(name_of(pool.status), bool(groups)),
        labels=dict(pool.config.labels),
        detail=_detail(pool.status_message, pool.conditions),
    )
    return PoolSeen(info, groups)


def _pool_status(name: str, has_groups: bool) -> PoolStatus:
    """The status of a pool. A pool in ERROR that has instance groups still retries."""
    status = _POOL_STATUS.get(name, PoolStatus.PROVISIONING)
    return PoolStatus.RUNNING if status is PoolStatus.ERROR and has_groups else status


def operation_report(operation: "container_v1.Operation") -> OperationReport:
    error, reported = operation.error, operation.status_message
    failed = bool(error.code or error.message or reported)
    conditions = [*operation.nodepool_conditions, *operation.cluster_conditions]
    return OperationReport(
        name=operation.name,
        location=operation.location or operation.zone,
        ended=name_of(operation.status) == "DONE",
        error=code_numbered(error.code) if failed else None,
        message=error.message or reported,
        conditions=tuple((name_of(each.code), each.message) for each in conditions),
        started_at=_unix_s(operation.start_time),
    )


def _unix_s(rfc3339: str) -> float | None:
    try:
        return datetime.fromisoformat(rfc3339).timestamp()
    except ValueError:
        return None


def kubernetes_access(cluster: "container_v1.Cluster") -> KubernetesAccess | None:
    """None while the cluster has no endpoint yet."""
    if not cluster.endpoint:
        return None
    endpoint = cluster.endpoint if "://" in cluster.endpoint else f"https://{cluster.endpoint}"
    return KubernetesAccess(endpoint, _certificate(cluster.master_auth.cluster_ca_certificate))


def _certificate(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return encoded


def _detail(message: str, conditions: "Sequence[container_v1.StatusCondition]") -> str:
    reported = [f"{name_of(each.code)}: {each.message}" if each.message else name_of(each.code) for each in conditions]
    return "; ".join([message, *reported] if message else reported)
