"""The local stack with a cloud: a simulator, and a master that has machines from it.

Nobody here starts cluster-controllers or workers: they are pods, which are processes of the simulator.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.children import free_port
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.local.fleet import KEY_FILE, fleet_at, home, read_fleet, region
from tradewind.local.parts import StackFailed, master, simulator, tail_of
from tradewind.local.simulator import Simulator
from tradewind.local.stack import POLL_S, START_S, LocalStack, Say, standing

DELAYS = {
    "CLUSTER_S": "2",
    "OPERATION_S": "0.2",
    "BOOT_S": "0.5",
    "RECREATE_S": "0.1",
    "RETRY_S": "0.25",
    "STOCKOUT_S": "0.75",
    "GIVE_UP_S": "15",
    "FORGET_S": "0.1",
    "REPAIR_S": "15",
}
"""A hundredth of what a cloud takes or a little more, so that it can be watched. Prices are those of a real hour."""
AWAY_USD_PER_HOUR = 0.56
"""Of a spot machine outside of the fleet's first cluster: a little more than in it, so that the job begins there."""
PODS_GRACE_S = 8.0
TELL_EVERY_S = 0.5
SIMULATOR_VARIABLES = "TRADEWIND_SIMULATOR_"


class CloudStack(LocalStack):
    roles = "a simulated cloud and a master"

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        nats_url: str,
        api: Api,
        say: Say,
        cloud: Simulator,
        fleet: bytes,
    ) -> None:
        own = {name: value for name, value in environ.items() if not name.startswith(SIMULATOR_VARIABLES)}
        super().__init__(folder, own, nats_url, api, say)
        self.cloud = cloud
        self.fleet = read_fleet(fleet)
        self.clusters = len(self.fleet.clusters)
        self._fleet_file = folder / "fleet.yaml"
        self._fleet_file.write_bytes(fleet)

    async def _start_roles(self, environ: Mapping[str, str], tasks: asyncio.TaskGroup) -> None:
        flags = ("--write-credentials", str(self.folder / KEY_FILE))
        hurried = {**environ, **{SIMULATOR_VARIABLES + name: delay_s for name, delay_s in DELAYS.items()}}
        pods = ("--region-run-dir", str(self.folder / "pods"))
        ports = ("--grpc-port", self._grpc_port(), "--http-port", self.cloud.url.rpartition(":")[2])
        regions = [word for cluster in self.fleet.clusters for word in ("--region", region(cluster))]
        await self._keep(simulator((*flags, *pods, *ports, *regions), hurried, self.folder), tasks)
        await self._until_cloud_is_there()
        for offer in self.fleet.offers:
            if offer.accelerator is not None and offer.zone not in home(self.fleet).zones:
                await self.cloud.set_price(offer.zone, offer.accelerator, AWAY_USD_PER_HOUR)
        arguments = (*self._api_port(), "--fleet", str(self._fleet_file))
        await self._keep(master(arguments, environ, self.folder), tasks)

    async def _end_workers(self) -> None:
        await self._end("simulator", PODS_GRACE_S)

    async def _until_ready(self) -> None:
        """Clusters take a while: those that have made themselves heard are told."""
        names = " and ".join(f"{cluster.name} in {cluster.location}" for cluster in self.fleet.clusters)
        self._say(f"making the clusters {names} through GKE's API; their cluster-controllers start as pods")
        told = asyncio.create_task(self._tell_clusters(), name="stack-clusters")
        try:
            await super()._until_ready()
        finally:
            told.cancel()
            await asyncio.wait({told})

    async def _tell_clusters(self) -> None:
        heard = 0
        while True:
            with contextlib.suppress(MasterAway):
                now = (await self.api.health()).clusters
                if heard < now < self.clusters:
                    self._say(f"{now} of {self.clusters} clusters are ready")
                heard = now
            await asyncio.sleep(TELL_EVERY_S)

    async def _until_cloud_is_there(self) -> None:
        for _ in range(round(START_S / POLL_S)):
            if await self.cloud.is_there():
                return
            await asyncio.sleep(POLL_S)
        log = self.folder / "simulator.log"
        raise StackFailed("The simulator did not become ready:", f"look at {self.folder}", tail_of(log))

    def _grpc_port(self) -> str:
        return self.fleet.cloud.endpoints.gke.rpartition(":")[2]


@asynccontextmanager
async def cloud_stack(
    environ: Mapping[str, str], say: Say, example: str, workers: int, *, nats_url: str = "", keep_folder: bool = False
) -> AsyncIterator[CloudStack]:
    """With the fleet of the example, and room for so many workers in every zone of it."""
    grpc_port, http_port = free_port(), free_port()
    fleet = fleet_at(example, grpc_port, http_port, workers)
    async with session() as opened:
        cloud = Simulator(opened, f"http://127.0.0.1:{http_port}")

        def build(folder: Path, api: Api) -> CloudStack:
            return CloudStack(folder, environ, nats_url, api, say, cloud, fleet)

        async with standing(build, say, keep_folder=keep_folder) as stack:
            yield stack
