"""A master that plans: jobs get machines by plan, measurements change plans, impossible jobs are refused."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.gke.price_api import known_prices
from controlplane.clouds.interface import MarketPrice
from controlplane.jobs.errors import SpecRefused
from controlplane.master.term import Term
from controlplane.planning.explanations import IDLE_GPUS
from controlplane.throughput.profile import Compute
from messages import subjects
from messages.clusters import ClusterHeartbeat, NodeObservation, Presence, WorkerObservation
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.jobs import Pod
from messages.measured import StepsMeasured
from messages.workers import WorkerPhase, WorkerStatus
from messages.worlds import GatheredProgress, Progress, RankProgress
from runtime.bus import Bus
from runtime.clock import SystemClock
from tests.allocator.planned_stage import FAR, IOWA
from tests.allocator.stage import EU, US
from tests.capacity.fake_cloud import FakeCloud, LooksAtOnce
from tests.conftest import Connect, eventually
from tests.master.terms import a_context, a_term
from tests.planning.builders import HOLLAND, IOWA_A
from tests.specs import a_planned_spec

pytestmark = pytest.mark.usefixtures("without_torch")

OFFERS = (FAR, IOWA)
IOWA_SPOT_MICRO_USD = 100_000
"""Far below the shipped price, so that a test can see which of the two is used."""


@asynccontextmanager
async def a_master(connect: Connect, cloud: FakeCloud) -> AsyncIterator[Term]:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    context = a_context(bus, bucket)
    known = known_prices({"TRADEWIND_PRICES_CACHE": "/nowhere/prices.json"}, None)
    planning = PlanInputs(
        cloud, LooksAtOnce(cloud), PricedFleet(OFFERS, known), bucket, SystemClock(), context.may_act, context.announce
    )
    settings = AllocatorSettings(retry_s=0.01, quiet_s=0.05, relist_s=0.2, plan_settle_s=0.05)
    capacity = Capacity(
        cloud,
        FleetTerms(OFFERS),
        SystemClock(),
        context.announce,
        lambda job, place: master.place(job, place),
        settings,
        planning,
    )
    master = a_term(context, capacity)
    started = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(master.run(started)), tasks.create_task(planning.run())]
        await started.wait()
        yield master
        for each in running:
            each.cancel()


def capacity_of(master: Term) -> Capacity:
    assert isinstance(master.capacity, Capacity)
    return master.capacity


def a_cloud() -> FakeCloud:
    cloud = FakeCloud(US, EU)
    cloud.prices = (
        MarketPrice(IOWA_A, "L4", IOWA_SPOT_MICRO_USD, 2_000_000),
        MarketPrice(HOLLAND, "L4", 900_000, 2_000_000),
    )
    return cloud


async def test_a_job_with_criteria_gets_its_machines_by_plan(connect: Connect) -> None:
    cloud = a_cloud()
    async with a_master(connect, cloud) as master:
        await master.service.submit(a_planned_spec("planned"))
        await eventually(lambda: {pool.kind.zone: pool.size for pool in cloud.pools()} == {IOWA_A: 2})
        await eventually(lambda: master.registry.jobs[JobName("planned")].state.supply.placement == {US: 2})


async def test_a_job_that_leaves_the_gpus_of_its_machines_idle_gets_a_warning(connect: Connect) -> None:
    async with a_master(connect, a_cloud()) as master:
        cpu = await master.service.submit(a_planned_spec("planned"))
        gpu = await master.service.submit(structs.replace(a_planned_spec("gpu"), pod=Pod(gpu=True)))
    assert cpu.warning == IDLE_GPUS
    assert gpu.warning == ""


async def test_the_measurements_of_its_trainers_become_the_profile_that_a_job_is_planned_by(connect: Connect) -> None:
    cloud, job = a_cloud(), JobName("planned")
    async with a_master(connect, cloud) as master:
        await master.service.submit(a_planned_spec("planned", min_utilisation=0.5))
        await eventually(lambda: {pool.kind.zone: pool.size for pool in cloud.pools()} == {IOWA_A: 2})
        [pool] = cloud.pools()
        nodes = tuple(NodeObservation(name, name, pool=pool.ref.pool, job=job) for name in ("node-0", "node-1"))
        workers = tuple(
            WorkerObservation(WorkerId(name), job, Presence.ALIVE, status=_on_node(job, name, node.node))
            for name, node in zip(("w-0", "w-1"), nodes, strict=True)
        )

        def is_measured() -> bool:
            demand = capacity_of(master).allocators()[job].demand
            return demand is not None and demand.profile.gradient_bytes == 4096

        async with asyncio.TaskGroup() as tasks:
            reporting = tasks.create_task(_report_until_cancelled(await connect("trainers"), workers, nodes))
            await eventually(is_measured)
            reporting.cancel()
        demand = capacity_of(master).allocators()[job].demand
        assert demand is not None
        assert demand.profile.compute["L4"] == Compute(0.01, 0.02)
        assert demand.profile.compute["H100"].seconds_per_sample < 0.01
        assert demand.profile.global_batch == 16
        shown = master.service.view(job).measured
        assert shown is not None
        assert (shown.gradient_bytes, round(shown.step_s, 3), round(shown.waiting, 3)) == (4096, 0.2, 0.5)
        low_use = capacity_of(master).allocators()[job].low_use
        assert low_use and {each.share for each in low_use.values()} == {round(0.08 / 0.18, 3)}
        beside_cost = (await master.service.cost(job)).measured
        assert beside_cost is not None and beside_cost.compute.keys() == {"L4"}


async def _report_until_cancelled(
    bus: Bus, workers: tuple[WorkerObservation, ...], nodes: tuple[NodeObservation, ...]
) -> None:
    """Publish heartbeats of the cluster and measurements of all ranks, as a cluster-controller does."""
    measured = StepsMeasured(100, 8.0, 0.2, 0.08, 0.1, 4096, 16)
    for number in itertools.count(1):
        bus.publish(subjects.cluster_heartbeat(US), ClusterHeartbeat(US, "a", number, workers=workers, nodes=nodes))
        for rank, worker in enumerate(workers):
            ranks = (RankProgress(Rank(rank), 0, 99, samples=800, measured=measured),)
            progress = Progress(worker.job, worker.worker, Generation(1), ranks)
            bus.publish(subjects.progress(worker.job), GatheredProgress(worker.job, US, (progress,)))
        await asyncio.sleep(0.01)


def _on_node(job: JobName, worker: str, node: str) -> WorkerStatus:
    return WorkerStatus(WorkerId(worker), US, job, 1, WorkerPhase.IDLE, zone=IOWA_A, node=node)


async def test_a_job_whose_cap_pays_for_no_world_is_refused_and_nothing_is_created(connect: Connect) -> None:
    cloud = a_cloud()
    async with a_master(connect, cloud) as master:
        await eventually(lambda: iowa_spot_micro_usd(master) == IOWA_SPOT_MICRO_USD)
        with pytest.raises(SpecRefused) as refused:
            await master.service.submit(a_planned_spec("planned", max_usd_per_hour=0.01))
        [problem] = refused.value.problems
        assert problem.startswith("capacity.max_usd_per_hour: ")
        assert "$0.01" in problem and "2 workers" in problem
        assert (master.registry.jobs, cloud.pools()) == ({}, [])
        assert await master.context.bucket.get(subjects.spec_key(JobName("planned"))) is None


def iowa_spot_micro_usd(master: Term) -> int | None:
    views = [each for each in master.service.offers().offers if (each.zone, each.accelerator) == (IOWA_A, "L4")]
    return next(each.spot_micro_usd_per_hour for each in views if each.machine_type == "g2-standard-8")


async def test_offers_have_the_current_prices_and_what_is_remembered_of_zones(connect: Connect) -> None:
    async with a_master(connect, a_cloud()) as master:
        await eventually(lambda: iowa_spot_micro_usd(master) == IOWA_SPOT_MICRO_USD)
        assert master.service.offers().remembers


async def test_a_master_without_a_fleet_offers_the_shipped_prices(connect: Connect) -> None:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    master = a_term(a_context(bus, bucket))
    reported = master.service.offers()
    assert (len(reported.offers) > 500, reported.remembers) == (True, False)
