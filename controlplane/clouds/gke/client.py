"""Calls to GKE. Only this module imports google.cloud and grpc. Import it late: the import takes most of a second.

Every call sends the access token as metadata, so that a stand-in without TLS gets the same calls.
Google's own retries are disabled: they continue for 20 s and ignore the timeout.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.api_core import exceptions
from google.cloud import container_v1
from google.cloud.container_v1.services.cluster_manager.transports import ClusterManagerGrpcAsyncIOTransport

from controlplane.clouds.gke import maintenance, requests
from controlplane.clouds.gke.classify import OperationReport
from controlplane.clouds.gke.failures import CallFailed, Code, code_named
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.clouds.gke.tokens import AccessTokens, FetchedToken
from controlplane.clouds.interface import KubernetesAccess, PoolRef
from messages.ids import ClusterName

T = TypeVar("T")

_CLOSED = "the connection to GKE was closed"
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


class GkeClient:
    """Every method raises `CallFailed` and takes at most `call_s`."""

    def __init__(self, settings: GkeSettings, tokens: AccessTokens) -> None:
        self._call_s = settings.call_s
        self._names = requests.Names(settings.project)
        self._locations = settings.locations
        self._tokens = tokens
        self._channel = _channel(settings)
        self._gke = container_v1.ClusterManagerAsyncClient(
            transport=ClusterManagerGrpcAsyncIOTransport(channel=self._channel)
        )

    async def clusters(self) -> tuple[requests.ClusterSeen, ...]:
        """List all clusters. Raises `CallFailed` if Google could not list a location."""
        answer = await self._call(self._gke.list_clusters, {"parent": self._names.location(requests.ANYWHERE)})
        missing = requests.missing_locations(answer, self._locations)
        if missing:
            raise CallFailed(Code.UNAVAILABLE, f"GKE could not list its clusters in {', '.join(missing)}")
        return requests.clusters_seen(answer, self._locations, time.time())

    async def pool(self, location: str, pool: PoolRef) -> requests.PoolSeen:
        answer = await self._call(self._gke.get_node_pool, {"name": self._names.pool(location, pool)})
        return requests.pool_seen(pool.cluster, answer)

    async def kubernetes_access(self, location: str, cluster: ClusterName) -> KubernetesAccess | None:
        answer = await self._call(self._gke.get_cluster, {"name": self._names.cluster(location, cluster)})
        return requests.kubernetes_access(answer)

    async def create_cluster(self, request: requests.Request) -> OperationReport:
        return requests.operation_report(await self._call(self._gke.create_cluster, request))

    async def exclude_upgrades(
        self, location: str, cluster: ClusterName, now_unix_s: float, until_unix_s: float
    ) -> OperationReport:
        """Read, change and write the maintenance policy. GKE refuses the write if somebody changed it meanwhile."""
        name = self._names.cluster(location, cluster)
        found = await self._call(self._gke.get_cluster, {"name": name})
        policy = maintenance.renewed(found.maintenance_policy, now_unix_s, until_unix_s)
        request = {"name": name, "maintenance_policy": policy}
        return requests.operation_report(await self._call(self._gke.set_maintenance_policy, request))

    async def create_pool(self, request: requests.Request) -> OperationReport:
        return requests.operation_report(await self._call(self._gke.create_node_pool, request))

    async def resize_pool(self, request: requests.Request) -> OperationReport:
        return requests.operation_report(await self._call(self._gke.set_node_pool_size, request))

    async def delete_pool(self, location: str, pool: PoolRef) -> OperationReport:
        name = self._names.pool(location, pool)
        return requests.operation_report(await self._call(self._gke.delete_node_pool, {"name": name}))

    async def delete_cluster(self, location: str, cluster: ClusterName) -> OperationReport:
        name = self._names.cluster(location, cluster)
        return requests.operation_report(await self._call(self._gke.delete_cluster, {"name": name}))

    async def operation(self, location: str, operation: str) -> OperationReport:
        name = self._names.operation(location, operation)
        return requests.operation_report(await self._call(self._gke.get_operation, {"name": name}))

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, method: Callable[..., Awaitable[T]], request: requests.Request) -> T:
        async def once(token: FetchedToken) -> T:
            try:
                return await method(request=request, retry=None, timeout=self._call_s, metadata=_metadata(token))
            except exceptions.GoogleAPICallError as error:
                raise _failed(error) from None
            except grpc.aio.UsageError:
                raise CallFailed(Code.CANCELLED, _CLOSED) from None
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                raise CallFailed(Code.CANCELLED, _CLOSED) from None

        return await self._tokens.spend(once)


def _is_cancelled() -> bool:
    """Check whether this task was cancelled. grpc raises `CancelledError` for a closed channel, too."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _channel(settings: GkeSettings) -> Any:
    if settings.insecure:
        return grpc.aio.insecure_channel(settings.endpoint, options=_CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(settings.endpoint, grpc.ssl_channel_credentials(), options=_CHANNEL_OPTIONS)


def _metadata(token: FetchedToken) -> tuple[tuple[str, str], ...]:
    """The token's headers in lower case, as gRPC requires."""
    return tuple((name.lower(), value) for name, value in token.headers.items())


def _failed(error: exceptions.GoogleAPICallError) -> CallFailed:
    code = code_named(error.grpc_status_code.name) if error.grpc_status_code is not None else Code.UNKNOWN
    return CallFailed(code, error.message or str(error), error.reason or "")
