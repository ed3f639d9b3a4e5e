"""The local stack with a cloud: a simulator, and a master that gets machines from it.

Cluster-controllers and workers are pods, which the simulator runs as processes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.children import free_port
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.local.fleet import KEY_FILE, decode_fleet, fleet_at, home, region
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
"""Delays of the simulator, in seconds: about a hundredth of a real cloud's. Prices are not scaled."""
AWAY_USD_PER_HOUR = 0.56
"""Price of a spot machine outside the fleet's first cluster: higher than inside, so that the job starts there."""
PODS_GRACE_S = 8.0
PRINT_EVERY_S = 0.5
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
        self.fleet = decode_fleet(fleet)
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
        """Waits for the clusters, and prints how many are ready."""
        names = " and ".join(f"{cluster.name} in {cluster.location}" for cluster in self.fleet.clusters)
        self._say(f"creating the clusters {names} through GKE's API; their cluster-controllers start as pods")
        reported = asyncio.create_task(self._print_clusters(), name="stack-clusters")
        try:
            await super()._until_ready()
        finally:
            reported.cancel()
            await asyncio.wait({reported})

    async def _print_clusters(self) -> None:
        heard = 0
        while True:
            with contextlib.suppress(MasterAway):
                now = (await self.api.health()).clusters
                if heard < now < self.clusters:
                    self._say(f"{now} of {self.clusters} clusters are ready")
                heard = now
            await asyncio.sleep(PRINT_EVERY_S)

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
    """A stack with the fleet of the example file, with room for all workers in each of its zones."""
    grpc_port, http_port = free_port(), free_port()
    fleet = fleet_at(example, grpc_port, http_port, workers)
    async with session() as opened:
        cloud = Simulator(opened, f"http://127.0.0.1:{http_port}")

        def build(folder: Path, api: Api) -> CloudStack:
            return CloudStack(folder, environ, nats_url, api, say, cloud, fleet)

        async with standing(build, say, keep_folder=keep_folder) as stack:
            yield stack
