"""GKE's gRPC side of the stand-in, with Google's own message classes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tests.clouds.stand_in.state import PROJECT, Cluster, Ended, Google, Operation, Pool, Refusal, Running, container_v1

SILENCE = "SILENCE"
"""The code of a refusal that leaves the caller without an answer."""

Answer = Callable[[Any, Any], Awaitable[Any]]


class GkeServer:
    """`stop` drops every connection; `start` again listens at the same address."""

    def __init__(self, google: Google) -> None:
        self._google = google
        self._server: Any = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_handlers(self._google),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)


def _handlers(google: Google) -> Any:
    served = {
        "ListClusters": (container_v1.ListClustersRequest, container_v1.ListClustersResponse, _list_clusters),
        "GetCluster": (container_v1.GetClusterRequest, container_v1.Cluster, _get_cluster),
        "CreateCluster": (container_v1.CreateClusterRequest, container_v1.Operation, _create_cluster),
        "DeleteCluster": (container_v1.DeleteClusterRequest, container_v1.Operation, _delete_cluster),
        "GetNodePool": (container_v1.GetNodePoolRequest, container_v1.NodePool, _get_pool),
        "CreateNodePool": (container_v1.CreateNodePoolRequest, container_v1.Operation, _create_pool),
        "SetNodePoolSize": (container_v1.SetNodePoolSizeRequest, container_v1.Operation, _resize_pool),
        "DeleteNodePool": (container_v1.DeleteNodePoolRequest, container_v1.Operation, _delete_pool),
        "GetOperation": (container_v1.GetOperationRequest, container_v1.Operation, _get_operation),
    }
    handlers = {
        method: grpc.unary_unary_rpc_method_handler(
            _guarded(google, method, answer),
            request_deserializer=asked.deserialize,
            response_serializer=answered.serialize,
        )
        for method, (asked, answered, answer) in served.items()
    }
    return grpc.method_handlers_generic_handler("google.container.v1.ClusterManager", handlers)


class _Refused(Exception):
    def __init__(self, code: str, message: str, reason: str = "") -> None:
        self.refusal = Refusal(code, message, reason)


def _guarded(google: Google, method: str, answer: Callable[[Google, Any], Any]) -> Answer:
    async def guarded(request: Any, context: Any) -> Any:
        google.calls.append((method, getattr(request, "name", "") or getattr(request, "parent", "")))
        google.settle()
        metadata = dict(context.invocation_metadata())
        if not google.accepts(metadata.get("authorization", "")):
            await _abort(context, Refusal("UNAUTHENTICATED", "Request had invalid authentication credentials."))
        if google.refusals[method]:
            await _abort(context, google.refusals[method].popleft())
        try:
            return answer(google, request)
        except _Refused as refused:
            await _abort(context, refused.refusal)

    return guarded


async def _abort(context: Any, refusal: Refusal) -> None:
    if refusal.code == SILENCE:
        await asyncio.sleep(60)
    code = grpc.StatusCode[refusal.code]
    trailing: tuple[tuple[str, bytes], ...] = ()
    if refusal.reason:
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(reason=refusal.reason, domain="googleapis.com"))
        status = status_pb2.Status(code=code.value[0], message=refusal.message, details=[detail])
        trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, refusal.message, trailing)


def _list_clusters(google: Google, _request: Any) -> Any:
    return container_v1.ListClustersResponse(
        {"clusters": [_shown(each) for each in google.clusters.values()], "missing_zones": list(google.missing_zones)}
    )


def _get_cluster(google: Google, request: Any) -> Any:
    return _shown(_cluster(google, _part(request.name, 5)))


def _get_pool(google: Google, request: Any) -> Any:
    return _pool(google, request.name).message


def _create_cluster(google: Google, request: Any) -> Any:
    asked = request.cluster
    if asked.name in google.clusters:
        raise _Refused("ALREADY_EXISTS", f"Already exists: {request.parent}/clusters/{asked.name}.")
    asked.location = _part(request.parent, 3)
    asked.status = container_v1.Cluster.Status.PROVISIONING
    pools = list(asked.node_pools)
    asked.node_pools = []
    cluster = google.clusters[asked.name] = Cluster(asked)
    for pool in pools:
        _add_pool(cluster, pool)
    return _start(google, "create_cluster", asked.name)


def _delete_cluster(google: Google, request: Any) -> Any:
    cluster = _cluster(google, _part(request.name, 5))
    _check_free(google, cluster.message.name, "")
    cluster.message.status = container_v1.Cluster.Status.STOPPING
    return _start(google, "delete_cluster", cluster.message.name)


def _create_pool(google: Google, request: Any) -> Any:
    cluster = _cluster(google, _part(request.parent, 5))
    name = request.node_pool.name
    if name in cluster.pools:
        raise _Refused("ALREADY_EXISTS", f"Already exists: {request.parent}/nodePools/{name}.")
    _check_free(google, cluster.message.name, name)
    _add_pool(cluster, request.node_pool)
    return _start(google, "create_node_pool", cluster.message.name, name)


def _resize_pool(google: Google, request: Any) -> Any:
    pool = _pool(google, request.name)
    cluster = _part(request.name, 5)
    _check_free(google, cluster, pool.message.name)
    pool.target = request.node_count
    return _start(google, "set_node_pool_size", cluster, pool.message.name)


def _delete_pool(google: Google, request: Any) -> Any:
    pool = _pool(google, request.name)
    cluster = _part(request.name, 5)
    _check_free(google, cluster, pool.message.name)
    pool.message.status = container_v1.NodePool.Status.STOPPING
    return _start(google, "delete_node_pool", cluster, pool.message.name)


def _get_operation(google: Google, request: Any) -> Any:
    operation = google.operations.get(_part(request.name, 5))
    if operation is None:
        raise _Refused("NOT_FOUND", f"Not found: {request.name}.")
    return operation.message


def _shown(cluster: Cluster) -> Any:
    shown = container_v1.Cluster(cluster.message)
    shown.node_pools = [pool.message for pool in cluster.pools.values()]
    return shown


def _add_pool(cluster: Cluster, message: Any) -> None:
    """Create a pool. Like GKE, the stand-in always reports the initial number of nodes, not the current one."""
    zone = next(iter(message.locations), cluster.message.location)
    message.status = container_v1.NodePool.Status.PROVISIONING
    pool = Pool(message, zone, [], message.initial_node_count)
    message.instance_group_urls = [
        f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{zone}/instanceGroupManagers/{pool.group}"
    ]
    cluster.pools[message.name] = pool


def _start(google: Google, kind: str, cluster: str, pool: str = "") -> Any:
    name = f"operation-{len(google.operations):04}"
    location = google.clusters[cluster].message.location
    message = container_v1.Operation({"name": name, "location": location, "status": Running})
    google.operations[name] = Operation(message, cluster, pool, time.monotonic() + google.operation_s, kind)
    running = sum(each.cluster == cluster for each in _running(google))
    google.most_at_work[cluster] = max(google.most_at_work[cluster], running)
    return message


def _running(google: Google) -> list[Operation]:
    return [each for each in google.operations.values() if each.message.status != Ended]


def _check_free(google: Google, cluster: str, pool: str) -> None:
    running = [each for each in _running(google) if each.cluster == cluster]
    for operation in running:
        if not pool or operation.pool in ("", pool):
            message = f"Cluster is running incompatible operation {operation.message.name}."
            raise _Refused("FAILED_PRECONDITION", message, "CLUSTER_ALREADY_HAS_OPERATION")
    if len(running) >= google.operations_at_once:
        message = f'Too many operations: cluster "{cluster}" hits the concurrent operations quota, try again later.'
        raise _Refused("RESOURCE_EXHAUSTED", message)


def _cluster(google: Google, name: str) -> Cluster:
    if name not in google.clusters:
        raise _Refused("NOT_FOUND", f"Not found: projects/{PROJECT}/locations/-/clusters/{name}.")
    return google.clusters[name]


def _pool(google: Google, path: str) -> Pool:
    cluster = _cluster(google, _part(path, 5))
    name = _part(path, 7)
    if name not in cluster.pools:
        raise _Refused("NOT_FOUND", f"Not found: {path}.")
    return cluster.pools[name]


def _part(path: str, index: int) -> str:
    return path.split("/")[index]
