"""Converts the model's state to GKE's messages. Enums are given by name, which Google's classes accept."""

from collections.abc import Callable
from typing import Any

from google.cloud import container_v1
from google.rpc import status_pb2

from simulator.cloud.gke.maintenance import version_of
from simulator.cloud.model import view
from simulator.cloud.model.operations import shortage_of
from simulator.cloud.model.state import Cloud, Cluster, Failure, Kind, Operation, Pool
from simulator.cloud.replies import rfc3339

VERSION = "1.35.1-gke.1000000"
API = "https://container.googleapis.com/v1"
COMPUTE_API = "https://www.googleapis.com/compute/v1"
_RESOURCE_EXHAUSTED = 8
_DEADLINE_EXCEEDED = 4
_PERMISSION_DENIED = 7
_PENDING_SHARE = 0.05

Wall = Callable[[float], float]
"""Converts the core's time to Unix seconds."""


def cluster_message(cloud: Cloud, cluster: Cluster, now_s: float, wall: Wall) -> Any:
    message: Any = container_v1.Cluster.deserialize(cluster.echo)
    pools = view.pools_of(cloud, cluster.key)
    message.id = cluster.uid
    message.self_link = f"{API}/{cluster.key}"
    message.location = message.zone = cluster.key.location
    message.locations = list(cluster.zones)
    message.status = view.cluster_status(cloud, cluster).value
    message.create_time = rfc3339(wall(cluster.created_s))
    message.current_master_version = message.current_node_version = VERSION
    message.initial_cluster_version = message.initial_cluster_version or VERSION
    message.endpoint = cluster.endpoint
    message.master_auth = container_v1.MasterAuth(cluster_ca_certificate=cluster.ca)
    message.node_pools = [pool_message(cloud, pool, now_s) for pool in pools]
    message.current_node_count = sum(len(view.members(cloud, pool.key)) for pool in pools)
    message.instance_group_urls = [url for pool in message.node_pools for url in pool.instance_group_urls]
    message.maintenance_policy.resource_version = version_of(message.maintenance_policy)
    if cluster.failed is not None:
        message.status_message = cluster.failed.message
        message.conditions = _conditions(cluster.failed)
    if any(pool.spec.service_account in cloud.roleless for pool in pools):
        message.conditions = [*message.conditions, _missing_permissions()]
    return message


def pool_message(cloud: Cloud, pool: Pool, now_s: float) -> Any:
    message: Any = container_v1.NodePool.deserialize(pool.echo)
    spec = pool.spec
    message.name = pool.key.pool
    message.self_link = f"{API}/{pool.key}"
    message.locations = list(spec.zones)
    message.initial_node_count = spec.size
    message.version = VERSION
    message.status = view.pool_status(cloud, pool).value
    message.instance_group_urls = [
        f"{COMPUTE_API}/projects/{pool.key.project}/zones/{group.zone}/instanceGroupManagers/{group.name}"
        for group in pool.groups
        if now_s >= pool.grouped_s
    ]
    message.config.machine_type = spec.machine.name
    message.upgrade_settings = {"max_surge": spec.max_surge, "max_unavailable": spec.max_unavailable}
    message.config.service_account = spec.service_account
    if spec.accelerator and not message.config.accelerators:
        message.config.accelerators = [
            container_v1.AcceleratorConfig(accelerator_type=spec.accelerator, accelerator_count=spec.accelerators)
        ]
    failure = _complaint(cloud, pool)
    if failure is not None:
        message.status_message = failure.message
        message.conditions = _conditions(failure)
    return message


def _complaint(cloud: Cloud, pool: Pool) -> Failure | None:
    if view.pool_status(cloud, pool) not in (view.Status.ERROR, view.Status.RUNNING_WITH_ERROR):
        return None
    return (
        pool.status_error.failure if pool.status_error is not None else shortage_of(cloud, pool, cloud.rules.stockout_s)
    )


def operation_message(cloud: Cloud, operation: Operation, now_s: float, wall: Wall) -> Any:
    target = str(operation.pool_key if operation.pool else operation.cluster)
    message = container_v1.Operation(
        name=operation.name,
        zone=operation.cluster.location,
        location=operation.cluster.location,
        operation_type=operation.kind.value,
        status=_operation_status(cloud, operation, now_s),
        self_link=f"{API}/projects/{operation.cluster.project}/locations/{operation.cluster.location}"
        f"/operations/{operation.name}",
        target_link=f"{API}/{target}",
        start_time=rfc3339(wall(operation.started_s)),
    )
    if operation.done_s is not None:
        message.end_time = rfc3339(wall(operation.done_s))
    if operation.failed is not None:
        _tell_failure(message, operation, operation.failed)
    return message


def server_config() -> Any:
    return container_v1.ServerConfig(
        default_cluster_version=VERSION,
        valid_master_versions=[VERSION],
        valid_node_versions=[VERSION],
        default_image_type="COS_CONTAINERD",
        valid_image_types=["COS_CONTAINERD", "UBUNTU_CONTAINERD"],
    )


def _operation_status(cloud: Cloud, operation: Operation, now_s: float) -> str:
    if operation.is_done:
        return "DONE"
    is_fresh = now_s < operation.started_s + cloud.rules.operation_s * _PENDING_SHARE
    return "PENDING" if is_fresh else "RUNNING"


def _tell_failure(message: Any, operation: Operation, failure: Failure) -> None:
    message.status_message = message.detail = failure.message
    code = _DEADLINE_EXCEEDED if failure.shortage is None else _RESOURCE_EXHAUSTED
    message.error = status_pb2.Status(code=code, message=failure.message)
    if operation.kind is Kind.CREATE_CLUSTER:
        message.cluster_conditions = _conditions(failure)
    else:
        message.nodepool_conditions = _conditions(failure)


def _missing_permissions() -> Any:
    """A condition that Google's console shows with the cluster; its place in the API is not verified."""
    return container_v1.StatusCondition(
        code="NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS",
        message="Grant roles/container.defaultNodeServiceAccount role to Node service account to allow for "
        "non-degraded operations.",
        canonical_code=_PERMISSION_DENIED,
    )


def _conditions(failure: Failure) -> list[Any]:
    if failure.shortage is None:
        return []
    code = failure.shortage.value
    return [container_v1.StatusCondition(code=code, message=failure.message, canonical_code=_RESOURCE_EXHAUSTED)]
