"""From GKE's requests to the model's: what is asked for, or why it cannot be."""

from collections.abc import Sequence
from typing import Any

from google.cloud import container_v1

from simulator.cloud.model import refusals
from simulator.cloud.model.machines import machine, may_take
from simulator.cloud.model.names import Path, parse
from simulator.cloud.model.refusals import Code, Refusal
from simulator.cloud.model.requests import CreateCluster, PoolWish
from simulator.cloud.model.state import DEFAULT_DISK_GB, DEFAULT_DISK_TYPE, PoolSpec, Taint, TaintEffect
from simulator.market.accelerators import ACCELERATORS, CPU

DEFAULT_MACHINE = "e2-medium"
DEFAULT_POOL = "default-pool"
DEFAULT_GRACE_S = 30.0
_EFFECTS = {
    container_v1.NodeTaint.Effect.NO_SCHEDULE: TaintEffect.NO_SCHEDULE,
    container_v1.NodeTaint.Effect.PREFER_NO_SCHEDULE: TaintEffect.PREFER_NO_SCHEDULE,
    container_v1.NodeTaint.Effect.NO_EXECUTE: TaintEffect.NO_EXECUTE,
}


def path_of(
    name: str, project: str = "", location: str = "", cluster: str = "", pool: str = "", operation: str = ""
) -> Path | Refusal:
    """Of the name or the parent, or of the older fields that say the same in pieces."""
    if name:
        return parse(name) or refusals.invalid(f"Malformed name: '{name}'.")
    if not project or not location:
        return refusals.invalid("Project and location must be set.")
    return Path(project, location, cluster, pool, operation)


def cluster_wish(path: Path, cluster: container_v1.Cluster) -> CreateCluster | Refusal:
    if cluster.autopilot.enabled:
        return Refusal(Code.UNIMPLEMENTED, "The simulator has no Autopilot clusters.")
    pools: list[container_v1.NodePool] = list(cluster.node_pools)
    if not pools and cluster.initial_node_count > 0:
        count, config = cluster.initial_node_count, cluster.node_config
        pools = [container_v1.NodePool(name=DEFAULT_POOL, initial_node_count=count, config=config)]
    wishes: list[PoolWish] = []
    for pool in pools:
        wish = pool_wish(pool)
        if isinstance(wish, Refusal):
            return wish
        wishes.append(wish)
    key = path.cluster_key._replace(cluster=cluster.name)
    return CreateCluster(key, tuple(wishes), tuple(cluster.locations), container_v1.Cluster.serialize(cluster))


def pool_wish(pool: container_v1.NodePool) -> PoolWish | Refusal:
    spec = spec_of(pool)
    if isinstance(spec, Refusal):
        return spec
    return PoolWish(pool.name, spec, container_v1.NodePool.serialize(pool))


def spec_of(pool: container_v1.NodePool) -> PoolSpec | Refusal:
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
        public_address=not pool.network_config.enable_private_nodes,
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


def _grace_s(config: container_v1.NodeConfig) -> float:
    asked = config.kubelet_config
    return float(asked.shutdown_grace_period_seconds) if "shutdown_grace_period_seconds" in asked else DEFAULT_GRACE_S


def updated_pool(known: bytes, request: Any) -> Any:
    """What was said of the pool, with what is said now."""
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
    if "kubelet_config" in request:
        pool.config.kubelet_config = request.kubelet_config
    return pool
