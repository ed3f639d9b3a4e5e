"""The ledger against the simulator's own bill, of a run with changing prices, preempted nodes and new masters."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import aiohttp
import msgspec
import pytest

from controlplane.capacity.leaders_cloud import LeadersCloud
from controlplane.capacity.observer import Observer
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.interface import Cloud, MachineInfo, PoolPlan, PoolRef
from controlplane.clouds.observations import Look
from controlplane.clouds.outcomes import Done, Unfinished
from controlplane.job.state import Job, new_job
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.ledger.views import cost_view
from messages import subjects
from messages.costs import CostView
from messages.ids import Epoch, JobName
from runtime.bus import Bucket, Bus
from runtime.clock import SystemClock
from tests.clouds.contract import a_pool, until
from tests.clouds.simulated import SMALL_DISKS, ZONE, SimulatedStage
from tests.conftest import eventually
from tests.specs import a_spec

FLEET = "a-fleet"
JOB = JobName("a-job")
DEAREST = 1_100_000
OTHER_ZONE = "us-central1-b"
LOOK_S = 0.02
WITHIN = 0.01
PROMPT_S = 0.1
"""Looks may be further apart on a busy machine."""
TRACE = f"""time_s,zone,accelerator,capacity,price,notice_s
0,{ZONE},nvidia-l4,8,0.50,
5,{ZONE},nvidia-l4,8,1.10,
9,{ZONE},nvidia-l4,1,1.10,0.4
11,{ZONE},nvidia-l4,8,0.70,
"""


class WatchedCloud(LeadersCloud):
    """A cloud that records the times of looks."""

    def __init__(self, cloud: Cloud) -> None:
        self.observer = Observer(cloud, SystemClock(), every_s=LOOK_S)
        super().__init__(cloud, lambda: True, self.observer)
        self._looks_s: list[float] = []

    async def next(self, after: int) -> Look:
        look = await self.observer.next(after)
        self._looks_s.append(look.at)
        return look

    def delay_s(self) -> float:
        """The most seconds by which a look was late."""
        return max(0.0, *(after - before - PROMPT_S for before, after in pairwise(self._looks_s)))


class Run:
    """A job's pools in a simulated cloud, without the job."""

    def __init__(self, stage: SimulatedStage, cloud: WatchedCloud, bucket: Bucket, http: aiohttp.ClientSession) -> None:
        self.stage = stage
        self.cloud = cloud
        self._bucket = bucket
        self._http = http
        self._clock = SystemClock()
        spec = a_spec(JOB)
        self._job: Job = new_job(spec, epoch=Epoch(1), at_s=0.0, submitted_at=self._clock.wall_s())

    @asynccontextmanager
    async def master(self, epoch: int) -> AsyncIterator[Books]:
        """A master that looks repeatedly; at its end it dies without saving."""
        books = Books(self._bucket, self._clock, Leadership(Epoch(epoch), lambda: Epoch(epoch)), save_s=0.3)
        books.open(self._job)
        tasks = (
            asyncio.create_task(self.cloud.observer.run(), name="observer"),
            asyncio.create_task(books.run(self.cloud, FLEET), name="ledger"),
        )
        try:
            yield books
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def make(self, plan: PoolPlan) -> PoolRef:
        assert await self.cloud.create_pool(self.stage.cluster.name, plan) == Done()
        return PoolRef(self.stage.cluster.name, plan.name)

    async def end(self, *pools: PoolRef) -> None:
        for pool in pools:
            assert await self.cloud.delete_pool(pool) == Done()
        await until(self.count, 0)

    async def machines(self) -> list[MachineInfo]:
        machines = await self.stage.cloud.machines()
        assert isinstance(machines, list), machines
        return machines

    async def count(self) -> int:
        return len(await self.machines())

    async def bill(self) -> int:
        url = self.stage.settings.compute_url.replace("/compute/v1", f"/bill?label=tradewind-job={JOB}")
        async with self._http.get(url) as response:
            return int((await response.json())["micro_usd"])


@asynccontextmanager
async def a_run(folder: Path, bus: Bus, **rules: object) -> AsyncIterator[Run]:
    async with SimulatedStage.open(folder, **rules) as stage, aiohttp.ClientSession() as http:
        url = stage.settings.compute_url.replace("/compute/v1", "/prices")
        cloud = WatchedCloud(await GkeCloud.open(msgspec.structs.replace(stage.settings, market_url=url), SMALL_DISKS))
        try:
            assert await cloud.create_cluster_with_node_pool(stage.cluster) == Done()
            yield Run(stage, cloud, await bus.bucket(subjects.STATE_BUCKET), http)
        finally:
            await cloud.close()


async def the_view(books: Books) -> CostView:
    ledger = await books.ledger(JOB)
    assert ledger is not None
    return cost_view(ledger)


async def at_its_end(books: Books) -> CostView:
    """The ledger's total once it has seen that no machine is left."""

    async def machines() -> int:
        return (await the_view(books)).machines

    await until(machines, 0)
    return await the_view(books)


async def test_prices_that_move_preemptions_and_a_change_of_masters_agree_with_the_cloud_s_own_bill(
    tmp_path: Path, bus: Bus, tell: Callable[[str], None]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    async with a_run(tmp_path, bus, trace=str(trace), boot_s=0.5, recreate_s=0.3) as run:
        spot = a_pool(ZONE)
        on_demand = replace(spot, name="steady", kind=spot.kind._replace(zone=OTHER_ZONE, spot=False))
        async with run.master(1) as books:
            pools = [await run.make(replace(spot, size=5)), await run.make(replace(on_demand, size=1))]
            before = {machine.id for machine in await run.machines()}
            assert len(before) == 6
            await asyncio.sleep(2.0)
            first = await the_view(books)
            assert first.micro_usd > 0
        async with run.master(2) as books:
            await eventually(lambda: _spent(books) > first.micro_usd)
            await _until_replaced(run, before)
            await asyncio.sleep(1.0)
        async with run.master(3) as books:
            await asyncio.sleep(2.0)
            await run.end(*pools)
            view = await at_its_end(books)
        billed = await run.bill()
        allowed = WITHIN * billed + run.cloud.delay_s() * 6 * DEAREST / 3600
    error = view.micro_usd / billed - 1
    tell(
        f"ledger {view.micro_usd} and bill {billed} micro-dollars: {error:+.2%}, looks {run.cloud.delay_s():.2f} s late"
    )
    assert abs(view.micro_usd - billed) < allowed
    assert {(line.zone, line.spot) for line in view.lines} == {(ZONE, True), (OTHER_ZONE, False)}
    assert view.on_demand_micro_usd != view.micro_usd


async def test_they_agree_in_a_cloud_that_lives_faster(tmp_path: Path, bus: Bus) -> None:
    async with a_run(tmp_path, bus, speed=60.0, boot_s=30.0) as run, run.master(1) as books:
        pool = await run.make(replace(a_pool(ZONE), size=3))
        await asyncio.sleep(5.0)
        await run.end(pool)
        view = await at_its_end(books)
        billed = await run.bill()
        allowed = WITHIN * billed + run.cloud.delay_s() * 3 * 60 * DEAREST / 3600
    assert abs(view.micro_usd - billed) < allowed


@pytest.mark.slow
async def test_nodes_that_come_after_they_were_given_up_are_paid_for_until_they_are_removed(
    tmp_path: Path, bus: Bus
) -> None:
    async with a_run(tmp_path, bus, stockout_s=100_000.0, retry_s=0.2) as run, run.master(1) as books:
        hasty = msgspec.structs.replace(run.stage.settings, nodes_s=0.2, errors_first_s=60.0, errors_most_s=60.0)
        cloud = WatchedCloud(await GkeCloud.open(hasty, SMALL_DISKS))
        await run.stage.stock_out()
        plan = replace(a_pool(ZONE), size=2)
        pool = PoolRef(run.stage.cluster.name, plan.name)
        assert isinstance(await cloud.create_pool(pool.cluster, plan), Unfinished)
        assert (await the_view(books)).micro_usd == 0
        await run.stage.stock_out(on=False)
        await until(run.count, 2)
        await asyncio.sleep(3.0)
        assert await cloud.remove_nodes(pool, sorted(await run.stage.nodes(pool))) == Done()
        await until(run.count, 0)
        view = await at_its_end(books)
        billed = await run.bill()
        await cloud.close()
        allowed = WITHIN * billed + run.cloud.delay_s() * 2 * DEAREST / 3600
    assert billed > 0
    assert abs(view.micro_usd - billed) < allowed


async def _until_replaced(run: Run, before: set[str]) -> None:
    """Some machines were preempted and replaced."""

    async def replaced() -> bool:
        now = {machine.id for machine in await run.machines()}
        return len(now) == len(before) and len(now - before) >= 3

    await until(replaced, True)


def _spent(books: Books) -> int:
    ledger = books.known(JOB)
    return 0 if ledger is None else cost_view(ledger).micro_usd
