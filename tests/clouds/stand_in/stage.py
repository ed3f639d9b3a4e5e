"""The stand-in as a stage of the contract, with a real `GkeCloud` in front of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.clouds.interface import Cloud, PoolRef
from tests.clouds.contract import a_cluster, a_pool
from tests.clouds.stand_in.gke import GkeServer
from tests.clouds.stand_in.keys import write_key
from tests.clouds.stand_in.state import PROJECT, Google
from tests.clouds.stand_in.web import WebServer

ZONE = "us-central1-a"


class StandInStage:
    region = "us-central1"
    cloud: Cloud

    def __init__(self, settings: GkeSettings, google: Google, gke: GkeServer, web: WebServer) -> None:
        self.settings = settings
        self.google = google
        self.gke = gke
        self.web = web
        self.cluster = a_cluster(ZONE)
        self.pool = a_pool(ZONE)
        self._opened: list[Cloud] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, **changes: object) -> "AsyncIterator[StandInStage]":
        google = Google()
        gke, web = GkeServer(google), WebServer(google)
        await gke.start()
        await web.start()
        stage = cls(patient_settings(gke, web, folder), google, gke, web)
        stage.settings = msgspec.structs.replace(stage.settings, **changes)
        try:
            stage.cloud = await stage.another()
            yield stage
        finally:
            for cloud in stage._opened:
                await cloud.close()
            await gke.stop()
            await web.stop()

    async def another(self, **changes: object) -> Cloud:
        cloud = await GkeCloud.open(msgspec.structs.replace(self.settings, **changes))
        self._opened.append(cloud)
        return cloud

    async def nodes(self, pool: PoolRef) -> set[str]:
        self.google.settle()
        return set(self.google.pool(pool.cluster, pool.pool).nodes)

    async def stock_out(self, on: bool = True) -> None:
        self.google.stocked_out = {ZONE} if on else set()

    async def take_quota(self) -> None:
        self.google.quotas["NVIDIA_L4_GPUS"] = 0.0

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        self.google.held.clear()
        yield
        self.google.held.set()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        await self.gke.stop()
        yield
        await self.gke.start()


def patient_settings(gke: GkeServer, web: WebServer, folder: Path) -> GkeSettings:
    """Settings with short timeouts for missing answers and long ones for busy clusters."""
    return GkeSettings(
        project=PROJECT,
        endpoint=gke.endpoint,
        insecure=True,
        compute_url=f"{web.url}/compute/v1",
        credentials_file=str(write_key(folder / "key.json", f"{web.url}/token")),
        read_s=2.0,
        lost_s=2.0,
        poll_first_s=0.01,
        poll_most_s=0.05,
        operation_s=30.0,
        turn_s=20.0,
    )
