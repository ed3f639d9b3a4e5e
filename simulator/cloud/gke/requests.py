"""Converts GKE's requests to the model's, or refuses them."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from google.cloud import container_v1

from simulator.accounts import DEFAULT_ACCOUNT
from simulator.cloud.model import refusals
from simulator.cloud.model.machines import machine, may_take
from simulator.cloud.model.names import Path, parse
from simulator.cloud.model.refusals import Code, Refusal
from simulator.cloud.model.requests import CreateCluster, PoolWish
from simulator.cloud.model.state import (
    DEFAULT_DISK_GB,
    DEFAULT_DISK_TYPE,
    DEFAULT_GRACE_S,
    Exclusion,
    PoolSpec,
    Taint,
    TaintEffect,
)
from simulator.market.markets import ACCELERATORS, CPU

DEFAULT_MACHINE = "e2-medium"
DEFAULT_POOL = "default-pool"
_EFFECTS = {
    container_v1.NodeTaint.Effect.NO_SCHEDULE: TaintEffect.NO_SCHEDULE,
    container_v1.NodeTaint.Effect.PREFER_NO_SCHEDULE: TaintEffect.PREFER_NO_SCHEDULE,
    container_v1.NodeTaint.Effect.NO_EXECUTE: TaintEffect.NO_EXECUTE,
}


def path_of(
    name: str, project: str = "", location: str = "", cluster: str = "", pool: str = "", operation: str = ""
) -> Path | Refusal:
    """The path in the name or parent, or in the older separate fields."""
    if name:
        return parse(name) or refusals.invalid(f"Malformed name: '{name}'.")
    if not project or not location:
        return refusals.invalid("Project and location must be set.")
    return Path(project, location, cluster, pool, operation)


def cluster_wish(
    path: Path, cluster: container_v1.Cluster, exclusions: tuple[Exclusion, ...] = ()
) -> CreateCluster | Refusal:
    if cluster.autopilot.enabled:
        return Refusal(Code.UNIMPLEMENTED, "The simulator has no Autopilot clusters.")
    pools: list[container_v1.NodePool] = list(cluster.node_pools)
    if not pools and cluster.initial_node_count > 0:
        count, config = cluster.initial_node_count, cluster.node_config
        pools = [container_v1.NodePool(name=DEFAULT_POOL, initial_node_count=count, config=config)]
    private = cluster.network_config.default_enable_private_nodes or cluster.private_cluster_config.enable_private_nodes
    wishes: list[PoolWish] = []
    for pool in pools:
        wish = pool_wish(pool, private=private)
        if isinstance(wish, Refusal):
            return wish
        wishes.append(wish)
    networks = _authorized_networks(cluster)
    if isinstance(networks, Refusal):
        return networks
    return CreateCluster(
        path.cluster_key._replace(cluster=cluster.name),
        tuple(wishes),
        tuple(cluster.locations),
        container_v1.Cluster.serialize(cluster),
        exclusions,
        private,
        networks,
    )


def _authorized_networks(cluster: container_v1.Cluster) -> tuple[str, ...] | Refusal | None:
    """Networks that may reach the control plane; None: all."""
    config = cluster.control_plane_endpoints_config.ip_endpoints_config.authorized_networks_config
    config = config if config.enabled else cluster.master_authorized_networks_config
    if not config.enabled:
        return None
    blocks = tuple(block.cidr_block for block in config.cidr_blocks)
    for block in blocks:
        try:
            ipaddress.ip_network(block)
        except ValueError:
            return refusals.invalid(f'Invalid CIDR block "{block}" in authorized networks.')
    return blocks


def pool_wish(pool: container_v1.NodePool, *, private: bool) -> PoolWish | Refusal:
    """The model's request for a pool. `private` is the cluster's default for nodes without an external address."""
    spec = spec_of(pool, private=private)
    if isinstance(spec, Refusal):
        return spec
    return PoolWish(pool.name, spec, container_v1.NodePool.serialize(pool))


def spec_of(pool: container_v1.NodePool, *, private: bool) -> PoolSpec | Refusal:
    config = pool.config
    if pool.autoscaling.enabled:
        return Refusal(Code.UNIMPLEMENTED, "The simulator has no autoscaler: create the pool without autoscaling.")
    name = config.machine_type or DEFAULT_MACHINE
    host = machine(name)
    if host is None:
        return refusals.invalid(f'Machine type with name "{name}" does not exist.')
    accelerators = _accelerators(config.accelerators)
    if isinstance(accelerators, Refusal):
        return accelerators
    kind, count = accelerators or (host.accelerator, host.accelerators)
    if host.accelerator and (kind, count) != (host.accelerator, host.accelerators):
        return refusals.invalid(f"{name} has {host.accelerators} of {host.accelerator}, not {count} of {kind}.")
    if kind and not host.accelerator and not may_take(host, kind):
        return refusals.invalid(f"{kind} cannot be attached to {name}.")
    if (wrong := _wrong_grace(config)) is not None:
        return wrong
    surge, unavailable = _upgrade_settings(pool)
    if surge < 0 or unavailable < 0 or surge + unavailable == 0:
        return refusals.invalid("maxSurge and maxUnavailable must not be negative, nor both be 0.")
    return PoolSpec(
        machine=host,
        accelerator=kind,
        accelerators=count,
        spot=config.spot or config.preemptible,
        zones=tuple(pool.locations),
        size=pool.initial_node_count,
        labels=dict(config.labels),
        resource_labels=dict(config.resource_labels),
        taints=taints_of(config.taints),
        shutdown_grace_s=_grace_s(config),
        disk_gb=config.disk_size_gb or DEFAULT_DISK_GB,
        disk_type=config.disk_type or DEFAULT_DISK_TYPE,
        auto_upgrade=pool.management.auto_upgrade,
        auto_repair=pool.management.auto_repair,
        max_surge=surge,
        max_unavailable=unavailable,
        private=_is_private(pool, private),
        service_account=config.service_account or DEFAULT_ACCOUNT,
    )


def taints_of(taints: Sequence[container_v1.NodeTaint]) -> tuple[Taint, ...]:
    return tuple(Taint(taint.key, taint.value, _EFFECTS.get(taint.effect, TaintEffect.NO_SCHEDULE)) for taint in taints)


def _accelerators(given: Sequence[container_v1.AcceleratorConfig]) -> tuple[str, int] | Refusal | None:
    if not given:
        return None
    if len(given) > 1:
        return refusals.invalid("At most one accelerator type can be attached to a node.")
    kind, count = given[0].accelerator_type, int(given[0].accelerator_count)
    if kind not in ACCELERATORS or kind == CPU:
        return refusals.invalid(f'Accelerator type "{kind}" does not exist.')
    if count < 1:
        return refusals.invalid("Accelerator count must be at least 1.")
    return kind, count


def _is_private(pool: container_v1.NodePool, default: bool) -> bool:
    config = pool.network_config
    return bool(config.enable_private_nodes) if "enable_private_nodes" in config else default


def _grace_s(config: container_v1.NodeConfig) -> float:
    asked = config.kubelet_config
    return float(asked.shutdown_grace_period_seconds) if "shutdown_grace_period_seconds" in asked else DEFAULT_GRACE_S


def _wrong_grace(config: container_v1.NodeConfig) -> Refusal | None:
    """Checks the fields as Google documents them; the texts of the refusals are not verified against Google."""
    asked = config.kubelet_config
    if "shutdown_grace_period_seconds" not in asked:
        return None
    if not (config.spot or config.preemptible):
        return refusals.invalid("shutdown_grace_period_seconds is only valid for Spot VMs.")
    if asked.shutdown_grace_period_seconds not in (0, 30, 120):
        return refusals.invalid("shutdown_grace_period_seconds must be one of 0, 30, 120.")
    if asked.shutdown_grace_period_critical_pods_seconds > asked.shutdown_grace_period_seconds:
        return refusals.invalid("shutdown_grace_period_critical_pods_seconds exceeds shutdown_grace_period_seconds.")
    return None


def _upgrade_settings(pool: container_v1.NodePool) -> tuple[int, int]:
    """Surge nodes and unavailable nodes; by default one surge node."""
    settings: Any = pool.upgrade_settings
    return (settings.max_surge, settings.max_unavailable) if "upgrade_settings" in pool else (1, 0)


def updated_pool(known: bytes, request: Any) -> Any:
    """The pool's message with the changes of the request."""
    pool: Any = container_v1.NodePool.deserialize(known)
    if "labels" in request:
        pool.config.labels = dict(request.labels.labels)
    if "resource_labels" in request:
        pool.config.resource_labels = dict(request.resource_labels.labels)
    if "taints" in request:
        pool.config.taints = list(request.taints.taints)
    if request.machine_type:
        pool.config.machine_type = request.machine_type
    if request.disk_size_gb:
        pool.config.disk_size_gb = request.disk_size_gb
    if "upgrade_settings" in request:
        pool.upgrade_settings = request.upgrade_settings
    if "kubelet_config" in request:
        pool.config.kubelet_config = request.kubelet_config
    return pool
