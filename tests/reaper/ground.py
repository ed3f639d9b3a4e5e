"""A simulated cloud with a fleet's cluster, planted orphans, and a fake master that knows jobs."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.interface import PoolPlan, PoolRef
from controlplane.clouds.outcomes import Done
from controlplane.fleet.files import read_fleet
from controlplane.fleet.interpretation import complete
from controlplane.reaper.ownership_labels import YOUNG_S, lease_of
from messages.api import JobList, JobView
from messages.ids import ClusterName, JobName
from messages.labels import FLEET_LABEL, JOB_LABEL
from runtime.children import free_port
from tests.clouds.contract import a_pool, found
from tests.clouds.simulated import PROJECT, SMALL_DISKS, ZONE, SimulatedStage
from tests.reaper.builders import BUS

FLEET = "a-fleet"
CLUSTER = ClusterName("a-cluster")
LONG_AGO_S = 10 * YOUNG_S


class Ground:
    def __init__(self, stage: SimulatedStage, cloud: GkeCloud, fleet_file: Path) -> None:
        self.stage = stage
        self.cloud = cloud
        self.fleet_file = fleet_file

    def a_plan(self, name: str, job: str, *, fleet: str = FLEET, age_s: float = LONG_AGO_S, bus: str = BUS) -> PoolPlan:
        """Create a pool as a master of that fleet would have done so long ago."""
        owner = msgspec.structs.replace(read_fleet(self.fleet_file), name=fleet)
        plan = replace(a_pool(ZONE), name=name, labels={JOB_LABEL: job})
        return complete(owner, plan, lease_of(time.time() - age_s, bus))

    async def plant(self, name: str, job: str, *, fleet: str = FLEET, age_s: float = LONG_AGO_S) -> PoolRef:
        assert await self.cloud.create_pool(CLUSTER, self.a_plan(name, job, fleet=fleet, age_s=age_s)) == Done()
        return PoolRef(CLUSTER, name)

    async def plant_cluster(self, name: str, fleet: str = FLEET) -> None:
        plan = replace(self.stage.cluster, name=ClusterName(name), labels={FLEET_LABEL: fleet})
        assert await self.cloud.create_cluster_with_node_pool(plan) == Done()

    async def clusters(self) -> set[str]:
        return {cluster.name for cluster in found(await self.cloud.clusters())}

    async def pools(self) -> set[str]:
        """Of jobs."""
        listed = [pool for cluster in found(await self.cloud.clusters()) for pool in cluster.pools]
        return {pool.ref.pool for pool in listed if JOB_LABEL in pool.labels}


@asynccontextmanager
async def a_ground(folder: Path, **rules: Any) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(SimulatedStage.open(folder, **rules))
        cloud = await GkeCloud.open(msgspec.structs.replace(stage.settings, nodes_s=0.2), SMALL_DISKS)
        stack.push_async_callback(cloud.close)
        assert await cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        yield Ground(stage, cloud, _fleet_file(stage, folder))


def _fleet_file(stage: SimulatedStage, folder: Path) -> Path:
    offer = {"cluster": CLUSTER, "zone": ZONE, "machine_type": "g2-standard-8", "accelerator": "nvidia-l4"}
    endpoints = {"gke": stage.settings.endpoint, "insecure": True, "compute": stage.settings.compute_url}
    credentials = stage.settings.credentials_file
    fleet = {
        "name": FLEET,
        "cloud": {"kind": "gke", "project": PROJECT, "credentials": credentials, "endpoints": endpoints},
        "clusters": [{"name": CLUSTER, "location": ZONE, "zones": [ZONE]}],
        "offers": [{**offer, "max_nodes": 4}],
        "nodes": {"disk": {"size_gb": 50}},
        "pods": {"image": "tradewind:local"},
    }
    path = folder / "fleet.yaml"
    path.write_bytes(msgspec.yaml.encode(fleet))
    return path


class TellingMaster:
    """A fake master that knows jobs and its fleet."""

    def __init__(
        self, fleet: str | None, jobs: Sequence[JobView], unread: Sequence[str], later: Sequence[JobView]
    ) -> None:
        self.fleet = fleet
        self.jobs = jobs
        self.unread = tuple(JobName(name) for name in unread)
        self.later = later
        self.port = free_port()

    @property
    def environ(self) -> dict[str, str]:
        return {"TRADEWIND_API_URL": f"http://127.0.0.1:{self.port}"}

    async def answer_jobs(self, _request: web.Request) -> web.Response:
        reported = JobList(tuple(self.jobs), self.unread)
        self.jobs = (*self.jobs, *self.later)
        return web.Response(body=msgspec.json.encode(reported), content_type="application/json")

    async def answer_version(self, _request: web.Request) -> web.Response:
        reported: dict[str, object] = {"version": "1", "protocol": 1, "epoch": 1}
        return web.json_response(reported if self.fleet is None else {**reported, "fleet": self.fleet})


@asynccontextmanager
async def a_master(
    *jobs: JobView, fleet: str | None = FLEET, unread: Sequence[str] = (), later: Sequence[JobView] = ()
) -> AsyncIterator[TellingMaster]:
    """`unread`: jobs whose records it cannot read; `later`: jobs that it knows only after the first request."""
    master = TellingMaster(fleet, jobs, unread, later)
    app = web.Application()
    app.add_routes([web.get("/v1/jobs", master.answer_jobs), web.get("/version", master.answer_version)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", master.port).start()
    try:
        yield master
    finally:
        await runner.cleanup()
