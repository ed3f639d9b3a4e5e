"""The simulator as a stage of the contract, with a real `GkeCloud` and a region that records calls."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from msgspec import structs

from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.settings import GkeConfig, GkeSettings, NodeConfig
from controlplane.clouds.interface import Cloud, PoolRef
from simulator.cloud.server import Serving, serve_cloud
from simulator.cloud.settings import CloudSettings
from tests.clouds.contract import a_cluster, a_pool
from tests.simulator_cloud.fake_region import FakeRegion, fake_region

PROJECT = "a-project"
SECRET = "a-secret"
REGION = "us-central1"
ZONE = "us-central1-a"


SMALL_DISKS = GkeConfig(nodes=NodeConfig(disk_gb=50))
"""Disks so small that several nodes fit the default quota."""


class SimulatedStage:
    region = REGION
    cloud: Cloud

    def __init__(
        self, serving: Serving, key: Path, http: aiohttp.ClientSession, note_taker: FakeRegion | None = None
    ) -> None:
        self.cluster = a_cluster(ZONE)
        self.pool = a_pool(ZONE)
        self.settings = settings_for(serving, key)
        self._serving = serving
        self._http = http
        self._note_taker = note_taker
        self._opened: list[Cloud] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, **rules: Any) -> "AsyncIterator[SimulatedStage]":
        async with AsyncExitStack() as stack:
            note_taker = await stack.enter_async_context(fake_region(REGION))
            key = folder / "key.json"
            serving = await stack.enter_async_context(serve_cloud(quick_cloud(note_taker.url, key, **rules)))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            stage = cls(serving, key, http, note_taker)
            stack.push_async_callback(stage.close)
            stage.cloud = await stage.another()
            yield stage

    async def close(self) -> None:
        for cloud in self._opened:
            await cloud.close()

    async def another(self, config: GkeConfig = SMALL_DISKS) -> Cloud:
        cloud = await GkeCloud.open(self.settings, config)
        self._opened.append(cloud)
        return cloud

    async def another_that_looks_late(self) -> Cloud:
        """Open a cloud that reads refusals of nodes only after the operation has ended."""
        cloud = await GkeCloud.open(
            structs.replace(self.settings, errors_first_s=60.0, errors_most_s=60.0), SMALL_DISKS
        )
        self._opened.append(cloud)
        return cloud

    async def nodes(self, pool: PoolRef) -> set[str]:
        async with self._http.get(f"{self._serving.url}/inventory") as response:
            nodes = (await response.json())["nodes"]
        mine = [node for node in nodes if (node["cluster"], node["pool"]) == (pool.cluster, pool.pool)]
        return {node["name"] for node in mine if node["phase"] == "running"}

    async def machines(self, pool: PoolRef) -> set[str]:
        """The ids of running machines."""
        async with self._http.get(f"{self._serving.url}/inventory") as response:
            nodes = (await response.json())["nodes"]
        mine = [node for node in nodes if (node["cluster"], node["pool"]) == (pool.cluster, pool.pool)]
        return {node["instance_id"] for node in mine if node["phase"] == "running"}

    async def stock_out(self, on: bool = True) -> None:
        await self.order("stockout", {"zone": ZONE, "accelerator": "nvidia-l4", "on": on})

    async def take_quota(self) -> None:
        for metric in ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS"):
            await self.order("quota", {"region": REGION, "metric": metric, "limit": 0})

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """No node is ready before its region says so."""
        assert self._note_taker is not None
        self._note_taker.obeys = False
        yield
        self._note_taker.obeys = True

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        await self.order("api", {"api": "gke", "away": True})
        yield
        await self.order("api", {"api": "gke", "away": False})

    async def calls(self, method: str, api: str = "gke") -> list[str]:
        """The codes of the answers to this method."""
        async with self._http.get(f"{self._serving.url}/calls?api={api}&method={method}") as response:
            return [call["outcome"] for call in await response.json()]

    async def order(self, what: str, body: Any, status: int = 200) -> None:
        async with self._http.post(f"{self._serving.url}/control/{what}", json=body) as response:
            assert response.status == status, await response.text()


def quick_cloud(region_url: str, key: Path, **rules: Any) -> CloudSettings:
    given: dict[str, Any] = {
        "projects": PROJECT,
        "secret": SECRET,
        "regions": f"{REGION}={region_url}",
        "write_credentials": str(key),
        "grpc_port": 0,
        "http_port": 0,
        "operation_s": 0.05,
        "group_s": 0.0,
        "cluster_s": 0.05,
        "boot_s": 0.02,
        "recreate_s": 0.05,
        "retry_s": 0.1,
        "stockout_s": 0.3,
        "forget_s": 0.1,
        "calls_per_minute": 0,
    }
    return CloudSettings(**given | rules)


def settings_for(serving: Serving, key: Path) -> GkeSettings:
    return GkeSettings(
        project=PROJECT,
        endpoint=serving.grpc_address,
        insecure=True,
        compute_url=f"{serving.url}/compute/v1",
        credentials_file=str(key),
        read_s=2.0,
        lost_s=5.0,
        poll_first_s=0.01,
        poll_most_s=0.05,
        operation_s=30.0,
        turn_s=20.0,
    )
