"""A cloud that serves, with regions that record calls, and real clients."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import grpc
from google.cloud import container_v1
from google.cloud.container_v1.services.cluster_manager.transports import ClusterManagerGrpcAsyncIOTransport

from simulator.cloud import tokens
from simulator.cloud.server import Serving, serve_cloud
from simulator.cloud.settings import CloudSettings
from tests.conftest import eventual_answer
from tests.simulator_cloud.fake_region import FakeRegion, fake_region

T = TypeVar("T")

PROJECT = "acme"
SECRET = "between us"
REGION = "us-central1"
ZONE = "us-central1-a"
OTHER = "europe-west4"
LOCATION = f"projects/{PROJECT}/locations/{REGION}"
CLUSTER = f"{LOCATION}/clusters/tw"
POOL = f"{CLUSTER}/nodePools/gpus"
WAIT_S = 20.0


@dataclass
class Running:
    serving: Serving
    regions: dict[str, FakeRegion]
    gke: container_v1.ClusterManagerAsyncClient
    http: aiohttp.ClientSession
    token: str

    @property
    def region(self) -> FakeRegion:
        return self.regions[REGION]

    async def call(self, method: str, token: str | None = None, **request: Any) -> Any:
        """Calls a method of GKE with a token and without the client's retries."""
        metadata = (("authorization", f"Bearer {self.token if token is None else token}"),)
        return await getattr(self.gke, method)(request=request, metadata=metadata, retry=None, timeout=10.0)

    async def done(self, operation: Any) -> Any:
        name = f"projects/{PROJECT}/locations/{operation.location}/operations/{operation.name}"

        async def ended() -> Any:
            found = await self.call("get_operation", name=name)
            return found if found.status.name == "DONE" else None

        return await eventual_answer(ended)

    async def pool(self, name: str = POOL) -> Any:
        return await self.call("get_node_pool", name=name)

    async def get(self, path: str, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.get(f"{self.serving.url}{path}", headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def post(self, path: str, body: Any, token: str = "", status: int = 200) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.http.post(f"{self.serving.url}{path}", json=body, headers=headers) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def nodes(self, phase: str = "running", pool: str = "gpus") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get("/inventory"))["nodes"]
        return [node for node in found if node["phase"] == phase and node["pool"] == pool]

    async def until_nodes(self, count: int, phase: str = "running", pool: str = "gpus") -> list[dict[str, Any]]:
        async def there() -> list[dict[str, Any]] | None:
            found = await self.nodes(phase, pool)
            return [*found, {}] if len(found) == count else None

        return (await eventual_answer(there))[:-1]

    async def with_cluster(self) -> "Running":
        operation = await self.call("create_cluster", parent=LOCATION, cluster=a_cluster())
        assert not (await self.done(operation)).status_message
        return self

    async def with_pool(self, size: int = 2, **config: Any) -> "Running":
        operation = await self.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(size, **config))
        assert not (await self.done(operation)).status_message
        return self


def a_cluster(name: str = "tw") -> dict[str, Any]:
    system = {"name": "system", "initial_node_count": 1, "config": {"machine_type": "e2-standard-2"}}
    return {"name": name, "locations": [ZONE], "node_pools": [system], "resource_labels": {"fleet": "demo"}}


def a_pool(size: int = 2, name: str = "gpus", **config: Any) -> dict[str, Any]:
    settings = {
        "machine_type": "g2-standard-8",
        "spot": True,
        "disk_size_gb": 50,
        "labels": {"tradewind-job": "mnist"},
        "accelerators": [{"accelerator_type": "nvidia-l4", "accelerator_count": 1}],
        "taints": [{"key": "tradewind", "value": "gpu", "effect": "NO_SCHEDULE"}],
        **config,
    }
    return {"name": name, "initial_node_count": size, "locations": [ZONE], "config": settings}


def quick(**changes: Any) -> dict[str, Any]:
    """Settings of a cloud with short delays."""
    return {
        "projects": PROJECT,
        "secret": SECRET,
        "grpc_port": 0,
        "http_port": 0,
        "region_poll_s": 0.05,
        "operation_s": 0.05,
        "group_s": 0.0,
        "cluster_s": 0.05,
        "boot_s": 0.05,
        "recreate_s": 0.05,
        "retry_s": 0.1,
        "stockout_s": 0.3,
        "forget_s": 0.1,
        "notice_s": 0.3,
        "calls_per_minute": 0,
        **changes,
    }


@contextlib.asynccontextmanager
async def running_cloud(**changes: Any) -> AsyncIterator[Running]:
    async with contextlib.AsyncExitStack() as stack:
        names = (REGION, OTHER)
        regions = {name: await stack.enter_async_context(fake_region(name)) for name in names}
        urls = ",".join(f"{region.name}={region.url}" for region in regions.values())
        settings = CloudSettings(**quick(regions=urls, **changes))
        serving = await stack.enter_async_context(serve_cloud(settings))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        channel = grpc.aio.insecure_channel(serving.grpc_address)
        stack.push_async_callback(channel.close)
        client = container_v1.ClusterManagerAsyncClient(transport=ClusterManagerGrpcAsyncIOTransport(channel=channel))
        token = tokens.issue(SECRET, time.time(), 600.0)
        yield Running(serving, regions, client, http, token)
