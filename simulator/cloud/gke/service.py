"""The simulated methods of GKE: reads use the state, changes are events for the core."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from google.cloud import container_v1

from simulator.cloud.gke.maintenance import exclusions_of, with_policy
from simulator.cloud.gke.requests import cluster_wish, path_of, pool_wish, spec_of, updated_pool
from simulator.cloud.gke.responses import cluster_message, operation_message, pool_message, server_config
from simulator.cloud.model import refusals, view
from simulator.cloud.model.names import ANYWHERE, OperationName, Path
from simulator.cloud.model.refusals import Refusal
from simulator.cloud.model.requests import (
    CreatePool,
    DeleteCluster,
    DeletePool,
    Request,
    ResizePool,
    SetExclusions,
    Started,
    UpdatePool,
)
from simulator.cloud.model.state import Cluster, Exclusion, Kind, Operation, Pool
from simulator.cloud.shell import CloudService

Answer = Any
"""One of GKE's messages, or a `Refusal`."""


class GkeService:
    def __init__(self, service: CloudService) -> None:
        self._service = service

    async def list_clusters(self, path: Path, request: Any) -> Answer:
        found = [
            self._cluster(cluster)
            for cluster in self._service.cloud.clusters.values()
            if cluster.key.project == path.project and path.location in (ANYWHERE, cluster.key.location)
        ]
        return container_v1.ListClustersResponse(clusters=found)

    async def get_cluster(self, path: Path, request: Any) -> Answer:
        cluster = self._service.cloud.clusters.get(path.cluster_key)
        return refusals.no_cluster(path.cluster_key) if cluster is None else self._cluster(cluster)

    async def create_cluster(self, path: Path, request: Any) -> Answer:
        exclusions = self._exclusions(request.cluster.maintenance_policy)
        if isinstance(exclusions, Refusal):
            return exclusions
        wish = cluster_wish(path, request.cluster, exclusions)
        return wish if isinstance(wish, Refusal) else await self._change(wish)

    async def delete_cluster(self, path: Path, request: Any) -> Answer:
        return await self._change(DeleteCluster(path.cluster_key))

    async def list_node_pools(self, path: Path, request: Any) -> Answer:
        cloud = self._service.cloud
        if path.cluster_key not in cloud.clusters:
            return refusals.no_cluster(path.cluster_key)
        pools = [self._pool(pool) for pool in view.pools_of(cloud, path.cluster_key)]
        return container_v1.ListNodePoolsResponse(node_pools=pools)

    async def get_node_pool(self, path: Path, request: Any) -> Answer:
        found = self._known_pool(path)
        return found if isinstance(found, Refusal) else self._pool(found)

    async def create_node_pool(self, path: Path, request: Any) -> Answer:
        cluster = self._service.cloud.clusters.get(path.cluster_key)
        wish = pool_wish(request.node_pool, private=cluster is not None and cluster.private_nodes)
        return wish if isinstance(wish, Refusal) else await self._change(CreatePool(path.cluster_key, wish))

    async def delete_node_pool(self, path: Path, request: Any) -> Answer:
        return await self._change(DeletePool(path.pool_key))

    async def set_node_pool_size(self, path: Path, request: Any) -> Answer:
        return await self._change(ResizePool(path.pool_key, request.node_count))

    async def update_node_pool(self, path: Path, request: Any) -> Answer:
        found = self._known_pool(path)
        if isinstance(found, Refusal):
            return found
        updated = updated_pool(found.echo, request)
        updated.locations, updated.initial_node_count = list(found.spec.zones), found.spec.size
        spec = spec_of(updated, private=found.spec.private)
        if isinstance(spec, Refusal):
            return spec
        return await self._change(UpdatePool(path.pool_key, spec, container_v1.NodePool.serialize(updated)))

    async def set_maintenance_policy(self, path: Path, request: Any) -> Answer:
        cluster = self._service.cloud.clusters.get(path.cluster_key)
        if cluster is None:
            return refusals.no_cluster(path.cluster_key)
        exclusions = self._exclusions(request.maintenance_policy)
        if isinstance(exclusions, Refusal):
            return exclusions
        updated = with_policy(container_v1.Cluster.deserialize(cluster.echo), request.maintenance_policy)
        if isinstance(updated, Refusal):
            return updated
        return await self._change(SetExclusions(cluster.key, exclusions, container_v1.Cluster.serialize(updated)))

    async def get_operation(self, path: Path, request: Any) -> Answer:
        operation = self._service.cloud.operations.get(OperationName(path.operation))
        if operation is None or not _is_ours(operation, path):
            return refusals.no_operation(path.project, path.location, path.operation)
        return self._operation(operation)

    async def list_operations(self, path: Path, request: Any) -> Answer:
        found = [self._operation(each) for each in self._service.cloud.operations.values() if _is_ours(each, path)]
        return container_v1.ListOperationsResponse(operations=found)

    async def get_server_config(self, path: Path, request: Any) -> Answer:
        return server_config()

    async def _change(self, request: Request) -> Answer:
        outcome = await self._service.ask(request)
        if not isinstance(outcome, Started):
            return outcome
        return self._operation(self._service.cloud.operations[outcome.operation])

    def _exclusions(self, policy: Any) -> tuple[Exclusion, ...] | Refusal:
        return exclusions_of(policy, self._service.wall_s(self._service.now_s), self._service.core_s)

    def _known_pool(self, path: Path) -> Pool | Refusal:
        cloud = self._service.cloud
        if path.cluster_key not in cloud.clusters:
            return refusals.no_cluster(path.cluster_key)
        return cloud.pools.get(path.pool_key) or refusals.no_pool(path.pool_key)

    def _cluster(self, cluster: Cluster) -> Any:
        return cluster_message(self._service.cloud, cluster, self._service.now_s, self._service.wall_s)

    def _pool(self, pool: Pool) -> Any:
        return pool_message(self._service.cloud, pool, self._service.now_s)

    def _operation(self, operation: Operation) -> Any:
        return operation_message(self._service.cloud, operation, self._service.now_s, self._service.wall_s)


def _is_ours(operation: Operation, path: Path) -> bool:
    key = operation.cluster
    is_gke = operation.kind is not Kind.DELETE_INSTANCES
    return is_gke and key.project == path.project and path.location in (ANYWHERE, key.location)


@dataclass(frozen=True, slots=True)
class Method:
    request: Any
    response: Any
    path: Callable[[Any], Path | Refusal]
    answer: Callable[[GkeService, Path, Any], Awaitable[Answer]]


def _at_parent(request: Any) -> Path | Refusal:
    return path_of(request.parent, request.project_id, request.zone)


def _at_name(request: Any) -> Path | Refusal:
    return path_of(request.name, request.project_id, request.zone)


def _at_cluster(request: Any) -> Path | Refusal:
    return path_of(request.name, request.project_id, request.zone, request.cluster_id)


def _in_cluster(request: Any) -> Path | Refusal:
    return path_of(request.parent, request.project_id, request.zone, request.cluster_id)


def _at_pool(request: Any) -> Path | Refusal:
    return path_of(request.name, request.project_id, request.zone, request.cluster_id, request.node_pool_id)


def _at_operation(request: Any) -> Path | Refusal:
    return path_of(request.name, request.project_id, request.zone, operation=request.operation_id)


_V1 = container_v1
_S = GkeService
METHODS = {
    "ListClusters": Method(_V1.ListClustersRequest, _V1.ListClustersResponse, _at_parent, _S.list_clusters),
    "GetCluster": Method(_V1.GetClusterRequest, _V1.Cluster, _at_cluster, _S.get_cluster),
    "CreateCluster": Method(_V1.CreateClusterRequest, _V1.Operation, _at_parent, _S.create_cluster),
    "DeleteCluster": Method(_V1.DeleteClusterRequest, _V1.Operation, _at_cluster, _S.delete_cluster),
    "ListNodePools": Method(_V1.ListNodePoolsRequest, _V1.ListNodePoolsResponse, _in_cluster, _S.list_node_pools),
    "GetNodePool": Method(_V1.GetNodePoolRequest, _V1.NodePool, _at_pool, _S.get_node_pool),
    "CreateNodePool": Method(_V1.CreateNodePoolRequest, _V1.Operation, _in_cluster, _S.create_node_pool),
    "DeleteNodePool": Method(_V1.DeleteNodePoolRequest, _V1.Operation, _at_pool, _S.delete_node_pool),
    "SetNodePoolSize": Method(_V1.SetNodePoolSizeRequest, _V1.Operation, _at_pool, _S.set_node_pool_size),
    "UpdateNodePool": Method(_V1.UpdateNodePoolRequest, _V1.Operation, _at_pool, _S.update_node_pool),
    "SetMaintenancePolicy": Method(
        _V1.SetMaintenancePolicyRequest, _V1.Operation, _at_cluster, _S.set_maintenance_policy
    ),
    "GetOperation": Method(_V1.GetOperationRequest, _V1.Operation, _at_operation, _S.get_operation),
    "ListOperations": Method(_V1.ListOperationsRequest, _V1.ListOperationsResponse, _at_parent, _S.list_operations),
    "GetServerConfig": Method(_V1.GetServerConfigRequest, _V1.ServerConfig, _at_name, _S.get_server_config),
}
