"""A planned job through Google's own clients, against the simulator: its prices, its quotas, its preemptions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.price_api import known_prices
from controlplane.clouds.outcomes import Done
from messages import subjects
from messages.clusters import ClusterHeartbeat, NodeObservation, WorkerObservation
from messages.criteria import Objective
from messages.events import Event
from messages.ids import JobName
from messages.offers import OfferView
from runtime.clock import SystemClock
from tests.capacity.builders import a_want, a_worker
from tests.capacity.fake_cloud import LooksAtOnce
from tests.clouds.simulated import SMALL_DISKS, ZONE, SimulatedStage
from tests.conftest import Connect, eventual_answer, eventually
from tests.planning.builders import a_small_profile, some_criteria

JOB = JobName("demo")
OTHER_ZONE = "us-central1-b"
SETTINGS = AllocatorSettings(retry_s=0.05, retry_max_s=0.2, relist_s=0.5, loss_cooldown_s=1.0, plan_settle_s=0.1)


class Bench:
    def __init__(self, stage: SimulatedStage, cloud: GkeCloud, planning: PlanInputs, offers: tuple[Offer, ...]) -> None:
        self.stage = stage
        self.planning = planning
        self.reported: list[Event] = []
        self.placed = Place(0)
        self.offers = offers
        self.capacity = Capacity(
            cloud, FleetTerms(offers), SystemClock(), self.reported.append, self._place, SETTINGS, planning
        )
        self.free: set[str] = set()
        """Nodes that the job has left."""

    def _place(self, _job: JobName, placed: Place) -> None:
        self.placed = placed
        self.free |= {name for names in placed.leaving.values() for name in names}

    async def nodes(self) -> dict[str, int]:
        counts = {offer.zone: len(await self.stage.nodes(pool_ref(JOB, offer))) for offer in self.offers}
        return {zone: count for zone, count in counts.items() if count}

    async def look(self) -> None:
        """Report the nodes like a cluster-controller. The job leaves a node as soon as it should."""
        observations: list[NodeObservation] = []
        workers: list[WorkerObservation] = []
        for offer in self.offers:
            ref = pool_ref(JOB, offer)
            for name in await self.stage.nodes(ref):
                observations.append(NodeObservation(name, name, pool=ref.pool, job=JOB, ready=True))
                workers += [a_worker(f"on-{name}", name)] if name not in self.free else []
        heartbeat = ClusterHeartbeat(
            cluster=self.stage.cluster.name, incarnation="a", seq=1, nodes=tuple(observations), workers=tuple(workers)
        )
        self.capacity.hear_heartbeat(heartbeat)

    def seen(self, zone: str) -> OfferView:
        found = (each for each in self.planning.advisor.offers().offers if each.zone == zone and each.gpus == 1)
        return next(each for each in found if each.accelerator == "L4")


@asynccontextmanager
async def a_bench(
    folder: Path, connect: Connect, rules: dict[str, Any] | None = None, **criteria: Any
) -> AsyncIterator[Bench]:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    async with SimulatedStage.open(folder, **(rules or {})) as stage:
        page = stage.settings.compute_url.replace("/compute/v1", "/prices")
        cloud = await GkeCloud.open(msgspec.structs.replace(stage.settings, market_url=page), SMALL_DISKS)
        assert await cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        offers = tuple(
            Offer(stage.cluster.name, zone, "g2-standard-8", 4, "nvidia-l4", 1) for zone in (OTHER_ZONE, ZONE)
        )
        prices = known_prices({"TRADEWIND_PRICES_CACHE": str(folder / "prices.json")}, None)
        planning = PlanInputs(
            cloud, LooksAtOnce(cloud), PricedFleet(offers, prices), bucket, SystemClock(), lambda: True, lambda _: None
        )
        bench = Bench(stage, cloud, planning, offers)
        demand = Demand(some_criteria(**{"min_workers": 2, "max_workers": 4, **criteria}), a_small_profile())
        await stage.order("price", {"zone": ZONE, "accelerator": "nvidia-l4", "price": 0.2})
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(_run(bench, demand))
            yield bench
            running.cancel()
        await cloud.close()


async def _run(bench: Bench, demand: Demand) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bench.planning.run())
        bench.capacity.start_allocator(tasks, JOB, a_want(4), demand=demand)
        while True:
            await bench.look()
            await asyncio.sleep(0.05)


async def test_a_job_follows_prices_from_zone_to_zone_and_never_stops_having_enough(
    tmp_path: Path, connect: Connect
) -> None:
    async with a_bench(tmp_path, connect) as bench:
        await eventual_answer(bench.nodes, lambda nodes: nodes.get(ZONE, 0) >= 2, "nodes where they are cheap")
        await bench.stage.order("price", {"zone": ZONE, "accelerator": "nvidia-l4", "price": 2.0})
        fewest = 4
        async with asyncio.timeout(60.0):
            while set(now := await bench.nodes()) != {OTHER_ZONE}:
                fewest = min(fewest, sum(now.values()))
                await asyncio.sleep(0.02)
    assert fewest >= 2
    changes = [event.fields["change"] for event in bench.reported if event.kind == "planned"]
    assert (changes[0], "move" in changes) == ("begin", True)


async def test_what_a_zone_did_is_in_the_offers(tmp_path: Path, connect: Connect) -> None:
    async with a_bench(tmp_path, connect) as bench:
        await eventual_answer(bench.nodes, lambda nodes: nodes.get(ZONE, 0) >= 2, "nodes where they are cheap")
        await eventually(lambda: (bench.seen(ZONE).availability or 0.0) > 0.6)
        assert bench.seen(ZONE).spot_micro_usd_per_hour == 200_000
        assert bench.seen(OTHER_ZONE).availability is None
        [node, *_] = sorted(await bench.stage.nodes(pool_ref(JOB, bench.offers[1])))
        await bench.stage.order("preempt", {"node": node, "notice_s": 0.0})
        await eventually(lambda: (bench.seen(ZONE).mean_lifetime_s or 4 * 3600.0) < 3 * 3600.0)


@pytest.mark.parametrize(
    "quota",
    [
        "us-central1:PREEMPTIBLE_NVIDIA_L4_GPUS=3",
        pytest.param("us-central1:SSD_TOTAL_GB=220", marks=pytest.mark.slow),
        pytest.param("us-central1:IN_USE_ADDRESSES=4", marks=pytest.mark.slow),
        pytest.param("CPUS_ALL_REGIONS=28", marks=pytest.mark.slow),
        pytest.param("GPUS_ALL_REGIONS=3", marks=pytest.mark.slow),
    ],
)
async def test_no_more_is_asked_for_than_the_project_s_quota_allows(
    tmp_path: Path, connect: Connect, quota: str
) -> None:
    async with a_bench(tmp_path, connect, {"quotas": quota}, objective=Objective.THROUGHPUT) as bench:
        await eventual_answer(bench.nodes, lambda nodes: sum(nodes.values()) == 3, "as many as the quota allows")
        await asyncio.sleep(1.0)
        assert sum((await bench.nodes()).values()) == 3
        assert set(await bench.stage.calls("CreateNodePool")) == {"OK"}
    assert "quota_exceeded" not in {event.kind for event in bench.reported}
