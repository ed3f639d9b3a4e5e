"""Kubernetes APIs for installations: the simulator's, and a real one if TRADEWIND_TEST_KUBECONFIG names one.

In a `Server` of either kind nothing places pods or cleans up a namespace.
"""

import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from kubernetes_asyncio import client as library

from controlplane.bootstrap.bootstrap import find
from controlplane.clouds.interface import KubernetesAccess
from controlplane.clouds.outcomes import Refused, Unreachable
from messages.ids import ClusterName
from runtime.kubernetes.client import KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_endpoint, from_kubeconfig
from runtime.kubernetes.paths import Manifest, path_of
from simulator.cloud import tokens
from simulator.kubelet.images import ImageRuntime, Pull
from simulator.region.region import Region
from simulator.region.settings import RegionSettings
from tests.bootstrap.builders import CLUSTER, IMAGE

SECRET = "simulated"
REAL = os.environ.get("TRADEWIND_TEST_KUBECONFIG", "")
SERVERS = ("simulator", "real") if REAL else ("simulator",)


@dataclass
class SimulatedCloud:
    """The part of a cloud that the bootstrap needs, in front of one region of the simulator."""

    region_url: str
    next_tokens: list[str] = field(default_factory=list)
    """Tokens that are handed out before valid ones."""
    refusal: Unreachable | Refused | None = None
    tokens_asked: int = 0

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused:
        return self.refusal or KubernetesAccess(f"{self.region_url}/k8s/{cluster}", "")

    async def access_token(self, cluster: ClusterName = CLUSTER) -> str:
        self.tokens_asked += 1
        return self.next_tokens.pop(0) if self.next_tokens else tokens.issue(SECRET, time.time(), 60.0)

    async def command(self, method: str, path: str, body: Manifest) -> Any:
        """Send a request to the region, like the cloud."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.region_url}/region/{path}", json=body) as answer,
        ):
            assert answer.ok, await answer.text()
            return await answer.json()


@contextlib.asynccontextmanager
async def simulated_cloud(*, controllers: bool, runs_pods: bool = False) -> AsyncIterator[SimulatedCloud]:
    """A simulated cloud. `controllers` create and place pods, which do not start if their image cannot be pulled."""
    ours = ImageRuntime(pull=Pull.WORKS if runs_pods else Pull.MISSING)
    settings = RegionSettings(secret=SECRET, images={IMAGE: ours})
    async with Region(settings) as region:
        cloud = SimulatedCloud(region.url)
        await cloud.command("PUT", f"clusters/{CLUSTER}", {"controllers": controllers})
        yield cloud


@dataclass
class Server:
    """One API server and a new namespace."""

    client: KubernetesApi
    api: Any
    """The library's ApiClient, for calls that only tests make."""
    configuration: ApiConfiguration
    namespace: str = field(default_factory=lambda: f"tw-test-{secrets.token_hex(4)}")

    async def create(self, manifest: Manifest) -> None:
        collection, _, _ = path_of(manifest).rpartition("/")
        await self.ask("POST", collection, manifest)

    async def change(self, manifest: Manifest, patch: Manifest) -> None:
        """Change an object as another owner than the bootstrap."""
        await self.ask("PATCH", path_of(manifest), patch, "application/merge-patch+json")

    async def delete(self, manifest: Manifest) -> None:
        await self.ask("DELETE", path_of(manifest), {"propagationPolicy": "Background"})

    async def read(self, manifest: Manifest) -> Manifest:
        found = await find(self.client, manifest)
        assert found is not None, path_of(manifest)
        return found

    async def ask(
        self, method: str, path: str, body: Manifest | None = None, content_type: str = "application/json"
    ) -> Any:
        """Send a request as an administrator."""
        return await self.api.call_api(
            path,
            method,
            query_params=[("fieldManager", "somebody-else")],
            header_params={"Content-Type": content_type, "Accept": "application/json"},
            body=body,
            response_types_map=dict.fromkeys((200, 201, 202), "object"),
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _request_timeout=10.0,
        )


@contextlib.asynccontextmanager
async def simulated_server() -> AsyncIterator[Server]:
    async with (
        simulated_cloud(controllers=False) as cloud,
        _server(from_endpoint(f"{cloud.region_url}/k8s/{CLUSTER}", cloud.access_token)) as server,
    ):
        yield server


@contextlib.asynccontextmanager
async def real_server() -> AsyncIterator[Server]:
    async with _server(await from_kubeconfig(REAL)) as server:
        yield server


@contextlib.asynccontextmanager
async def _server(configuration: ApiConfiguration) -> AsyncIterator[Server]:
    untyped: Any = library
    async with untyped.ApiClient(configuration.library) as api, connected(configuration, "tests", 10.0) as client:
        yield Server(client, api, configuration)
