"""A job in the fleet's order against the simulator's quotas, which refuse a call as a whole."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.price_api import known_prices
from controlplane.clouds.gke.quotas import too_small
from controlplane.clouds.interface import Quota
from controlplane.clouds.outcomes import Done, Refused, Shortfall, Unreachable
from messages import subjects
from messages.events import Event
from messages.ids import JobName
from runtime.clock import SystemClock
from tests.capacity.builders import a_want
from tests.capacity.fake_cloud import LooksAtOnce
from tests.clouds.contract import until
from tests.clouds.simulated import REGION, ZONE, SimulatedStage
from tests.conftest import Connect, eventually

JOB = JobName("eager")
WANTED = 8
FITS = 4
"""Disks of 100 GB, within 500 GB for a region, beside a system pool of 50 GB."""
PAGE = "https://console.cloud.google.com/iam-admin/quotas"


class SilentQuotas(GkeCloud):
    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        return Unreachable(f"nobody answers for {scope}")


class Bench:
    def __init__(self, stage: SimulatedStage, cloud: GkeCloud, planning: PlanInputs, offers: tuple[Offer, ...]) -> None:
        self.stage = stage
        self.offers = offers
        self.reported: list[Event] = []
        self.shortage = ""
        self.capacity = Capacity(
            cloud,
            FleetTerms(offers),
            SystemClock(),
            self.reported.append,
            self._place,
            AllocatorSettings(retry_s=0.05, quiet_s=0.1),
            planning,
        )

    def _place(self, _job: JobName, placed: Place) -> None:
        self.shortage = placed.shortage

    async def nodes(self) -> int:
        return sum([len(await self.stage.nodes(pool_ref(JOB, offer))) for offer in self.offers])


@asynccontextmanager
async def a_bench(folder: Path, connect: Connect, kind: type[GkeCloud] = GkeCloud) -> AsyncIterator[Bench]:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    async with SimulatedStage.open(folder) as stage:
        cloud = await kind.open(stage.settings)
        assert await cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        zones = (ZONE, "us-central1-b")
        offers = tuple(Offer(stage.cluster.name, zone, "g2-standard-8", WANTED, "nvidia-l4", 1) for zone in zones)
        prices = known_prices({"TRADEWIND_PRICES_CACHE": str(folder / "prices.json")}, None)
        planning = PlanInputs(
            cloud,
            LooksAtOnce(cloud),
            PricedFleet(offers, prices, [stage.cluster.system]),
            bucket,
            SystemClock(),
            lambda: True,
            lambda _: None,
        )
        bench = Bench(stage, cloud, planning, offers)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(planning.run())
            yield bench
            running.cancel()
        await cloud.close()


async def test_what_quotas_have_no_room_for_is_not_asked_for_and_people_hear_which_they_are(
    tmp_path: Path, connect: Connect
) -> None:
    async with a_bench(tmp_path, connect) as bench, asyncio.TaskGroup() as tasks:
        bench.capacity.start_allocator(tasks, JOB, a_want(0))
        await eventually(lambda: bench.capacity.allocators()[JOB].quotas.left)
        bench.capacity.want(JOB, a_want(WANTED))
        await until(bench.nodes, FITS)
        assert await bench.stage.calls("CreateNodePool") == ["OK"]
        assert all(value in bench.shortage for value in (f"SSD_TOTAL_GB in {REGION}", "g2-standard-8", PAGE))
        bench.capacity.want(JOB, a_want(0, "over"))
        await eventually(lambda: bench.capacity.is_settled(JOB))


async def test_a_refused_request_is_made_again_at_once_for_what_has_room(tmp_path: Path, connect: Connect) -> None:
    async with a_bench(tmp_path, connect, SilentQuotas) as bench, asyncio.TaskGroup() as tasks:
        bench.capacity.start_allocator(tasks, JOB, a_want(WANTED))
        await until(bench.nodes, FITS)
        assert await bench.stage.calls("CreateNodePool") == ["PERMISSION_DENIED", "OK"]
        [asked] = [event for event in bench.reported if event.kind == "pool_created" and event.fields["size"] == FITS]
        assert too_small(Shortfall("SSD_TOTAL_GB", True, 800.0, 450.0), limit=500.0) in asked.why
        assert PAGE in asked.why
        bench.capacity.want(JOB, a_want(0, "over"))
        await eventually(lambda: bench.capacity.is_settled(JOB))
