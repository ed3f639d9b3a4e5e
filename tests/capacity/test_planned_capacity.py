"""A planned job from its file to its pools: it gets its market, plans are made in the thread, pools follow."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.gke.price_api import known_prices
from controlplane.clouds.interface import MarketPrice
from controlplane.planning.criteria import criteria_of
from controlplane.planning.profiles import profile_of
from controlplane.throughput.use import NodeUse
from messages import subjects
from messages.clusters import ClusterHeartbeat, NodeObservation
from messages.criteria import Capacity as Criteria
from messages.criteria import Objective
from messages.events import Event
from messages.ids import JobName
from messages.jobs import JobSpec, Pod
from runtime.clock import SystemClock
from tests.allocator.planned_stage import FAR, IOWA
from tests.allocator.stage import EU, US
from tests.capacity.builders import a_want, a_worker
from tests.capacity.fake_cloud import FakeCloud, LooksAtOnce, a_quota
from tests.conftest import Connect, eventually
from tests.planning.builders import HOLLAND, IOWA_A
from tests.specs import a_planned_spec, a_spec

JOB = JobName("demo")
OFFERS = (FAR, IOWA)
SETTINGS = AllocatorSettings(retry_s=0.01, quiet_s=0.05, relist_s=0.2, plan_settle_s=0.05)


def prices(iowa: int, holland: int) -> tuple[MarketPrice, ...]:
    return (
        MarketPrice(IOWA_A, "L4", iowa, 2_000_000),
        MarketPrice(HOLLAND, "L4", holland, 2_000_000),
    )


class Stage:
    def __init__(self, cloud: FakeCloud, planning: PlanInputs, offers: tuple[Offer, ...]) -> None:
        self.cloud = cloud
        self.planning = planning
        self.reported: list[Event] = []
        self.placed = Place(0)
        self.capacity = Capacity(
            cloud, FleetTerms(offers), SystemClock(), self.reported.append, self._place, SETTINGS, planning
        )

    def _place(self, _job: JobName, placed: Place) -> None:
        self.placed = placed

    def zones(self) -> dict[str, int]:
        return {pool.kind.zone: pool.size for pool in self.cloud.pools() if pool.size}

    def sees(self, *left: str) -> None:
        """Report all target nodes, each with a worker that trains, except for the nodes that the job has left."""
        for cluster in (US, EU):
            nodes = tuple(
                NodeObservation(
                    f"{pool.kind.zone}-{number}", f"{pool.kind.zone}-{number}", pool=pool.ref.pool, job=JOB, ready=True
                )
                for pool in self.cloud.pools()
                if pool.ref.cluster == cluster
                for number in range(pool.size)
            )
            workers = tuple(a_worker(f"on-{node.node}", node.node) for node in nodes if node.node not in left)
            self.capacity.hear_heartbeat(
                ClusterHeartbeat(cluster=cluster, incarnation="a", seq=1, nodes=nodes, workers=workers)
            )


@asynccontextmanager
async def a_stage(
    connect: Connect,
    cloud: FakeCloud,
    spec: JobSpec,
    offers: tuple[Offer, ...] = OFFERS,
    idle_timeout_s: float | None = None,
) -> AsyncIterator[Stage]:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    known = known_prices({"TRADEWIND_PRICES_CACHE": "/nowhere/prices.json"}, None)
    planning = PlanInputs(
        cloud, LooksAtOnce(cloud), PricedFleet(offers, known), bucket, SystemClock(), lambda: True, lambda _: None
    )
    stage = Stage(cloud, planning, offers)
    demand = Demand(criteria_of(spec), profile_of(spec))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_run(stage, demand, idle_timeout_s))
        yield stage
        running.cancel()


async def _run(stage: Stage, demand: Demand, idle_timeout_s: float | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stage.planning.run())
        stage.capacity.start_allocator(
            tasks, JOB, a_want(demand.criteria.max_workers), demand=demand, idle_timeout_s=idle_timeout_s
        )


async def test_a_planned_job_goes_where_it_is_cheap_whatever_the_order_of_the_fleet(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=100_000, holland=900_000)
    async with a_stage(connect, cloud, a_planned_spec()) as stage:
        await eventually(lambda: stage.zones() == {IOWA_A: 2})
        await eventually(lambda: stage.placed.workers == {US: 2})
    [planned] = [event for event in stage.reported if event.kind == "planned"]
    assert planned.why


async def test_when_prices_turn_the_job_is_asked_to_leave_the_very_nodes_that_became_dear(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=100_000, holland=900_000)
    async with a_stage(connect, cloud, a_planned_spec()) as stage:
        await eventually(lambda: stage.zones() == {IOWA_A: 2})
        stage.sees()
        cloud.prices = prices(iowa=1_900_000, holland=100_000)
        await eventually(lambda: HOLLAND in stage.zones() or bool(stage.placed.leaving))
        stage.sees()
        await eventually(lambda: bool(stage.placed.leaving))
    assert set(stage.placed.leaving) == {US}
    assert all(name.startswith(IOWA_A) for name in stage.placed.leaving[US])


async def test_a_job_that_is_not_planned_keeps_the_order_of_the_fleet(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=100_000, holland=900_000)
    async with a_stage(connect, cloud, a_planned_spec()) as stage, asyncio.TaskGroup() as tasks:
        stage.capacity.start_allocator(tasks, JobName("other"), a_want(1))
        await eventually(lambda: stage.zones() == {IOWA_A: 2, HOLLAND: 1})
        stage.capacity.want(JobName("other"), a_want(1, "done"))
        await eventually(lambda: stage.capacity.is_settled(JobName("other")))


async def test_where_no_machine_of_the_fleet_has_a_price_its_order_is_kept(connect: Connect) -> None:
    unpriced = tuple(replace(offer, machine_type="g9-standard-8") for offer in OFFERS)
    cloud = FakeCloud(US, EU)
    async with a_stage(connect, cloud, a_planned_spec(), unpriced) as stage:
        await eventually(lambda: stage.zones() == {HOLLAND: 2})
        assert await stage.planning.advisor.refusals(a_planned_spec(max_usd_total=100.0)) == []


async def test_what_only_a_plan_keeps_is_refused_where_nothing_can_be_planned(connect: Connect) -> None:
    unpriced = tuple(replace(offer, machine_type="g9-standard-8") for offer in OFFERS)
    async with a_stage(connect, FakeCloud(US, EU), a_planned_spec(), unpriced) as stage:
        problems = await stage.planning.advisor.refusals(a_planned_spec(max_usd_per_hour=40.0, regions=("us-",)))
        assert [path for path, _ in problems] == ["capacity.max_usd_per_hour", "capacity.regions"]


async def test_a_budget_that_forbids_machines_on_demand_is_planned_for_at_once(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=3_000_000, holland=3_000_000)
    on_demand = tuple(replace(offer, spot=False) for offer in OFFERS)
    async with a_stage(connect, cloud, a_planned_spec(on_demand=1.0), (*OFFERS, *on_demand)) as stage:
        await eventually(lambda: sum(pool.size for pool in cloud.pools() if not pool.kind.spot) == 2)
        stage.sees()
        stage.capacity.want(JOB, a_want(2, spot_only=True))
        await eventually(lambda: bool(stage.placed.leaving))


async def test_no_more_is_asked_for_than_the_quota_leaves(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=100_000, holland=110_000)
    cloud.quota_by_scope["us-central1"] = (a_quota("us-central1", "L4_SPOT", 1.0),)
    async with a_stage(connect, cloud, a_planned_spec(workers=2)) as stage:
        await eventually(lambda: sum(stage.zones().values()) == 2)
        assert stage.zones().get(IOWA_A, 0) <= 1


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ({"max_usd_per_hour": 0.01}, "capacity.max_usd_per_hour"),
        ({"zones": ("asia-east1-a",)}, "capacity.zones"),
        ({"accelerators": ("H100",)}, "capacity.accelerators"),
    ],
)
async def test_what_the_fleet_cannot_give_is_refused(connect: Connect, criteria: dict[str, Any], text: str) -> None:
    async with a_stage(connect, FakeCloud(US, EU), a_planned_spec()) as stage:
        [(path, _)] = await stage.planning.advisor.refusals(a_planned_spec(**criteria))
    assert path == text


async def test_a_job_without_criteria_that_fits_on_no_machine_is_refused_in_the_words_of_a_planned_one(
    connect: Connect,
) -> None:
    unplanned = a_spec(JOB, ranks=3, pod=Pod(gpu=True))
    async with a_stage(connect, FakeCloud(US, EU), a_planned_spec()) as stage:
        reported = await stage.planning.advisor.refusals(unplanned)
        [(path, text)] = reported
        assert (path, re.findall(r"\d+", text)) == ("workers.ranks", ["3", "1"])
        assert reported == await stage.planning.advisor.refusals(structs.replace(unplanned, capacity=Criteria()))
        assert await stage.planning.advisor.refusals(structs.replace(unplanned, pod=Pod())) == []


async def test_prices_that_cannot_be_refreshed_are_announced_and_shown_with_the_offers(connect: Connect) -> None:
    """Connections to port 9 are refused."""
    reported: list[Event] = []
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    environ = {
        "TRADEWIND_PRICES_CACHE": "/nowhere/prices.json",
        "TRADEWIND_PRICES_URL": "http://127.0.0.1:9",
        "TRADEWIND_PRICES_API_KEY": "a-key",
        "TRADEWIND_PRICES_ATTEMPTS": "1",
    }
    known = known_prices(environ, None)
    planning = PlanInputs(
        FakeCloud(US, EU),
        LooksAtOnce(FakeCloud()),
        PricedFleet(OFFERS, known),
        bucket,
        SystemClock(),
        lambda: True,
        reported.append,
    )
    running = asyncio.create_task(planning.run(), name="planning")
    await eventually(lambda: any(event.kind == "prices_not_refreshed" for event in reported))
    running.cancel()
    [event] = [event for event in reported if event.kind == "prices_not_refreshed"]
    assert known.catalog.date in event.text and "http://127.0.0.1:9" in event.why
    assert planning.advisor.offers().not_refreshed == event.why


async def test_offers_say_when_their_prices_are_those_of_the_moment(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    async with a_stage(connect, cloud, a_planned_spec()) as stage:
        assert not stage.planning.advisor.offers().of_the_moment
        cloud.prices = prices(iowa=100_000, holland=900_000)
        await eventually(lambda: stage.planning.advisor.offers().of_the_moment)


async def test_more_workers_than_the_fleet_has_are_refused_with_how_many_there_are(connect: Connect) -> None:
    async with a_stage(connect, FakeCloud(US, EU), a_planned_spec()) as stage:
        [(path, text)] = await stage.planning.advisor.refusals(a_planned_spec(workers=40))
    assert path == "workers.min" and "at most 16" in text


async def test_the_dearest_machine_is_one_that_the_job_may_be_given(connect: Connect) -> None:
    async with a_stage(connect, FakeCloud(US, EU), a_planned_spec()) as stage:
        anywhere = stage.planning.advisor.dearest(criteria_of(a_planned_spec()))
        in_iowa = stage.planning.advisor.dearest(criteria_of(a_planned_spec(zones=(IOWA_A,))))
        nowhere = stage.planning.advisor.dearest(criteria_of(a_planned_spec(zones=("asia-east1-a",))))
    assert anywhere is not None and in_iowa is not None and anywhere >= in_iowa
    assert nowhere is None


async def test_a_node_that_is_used_too_little_is_left_by_the_job_and_given_back(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=100_000, holland=900_000)
    spec = a_planned_spec(least=1, objective=Objective.THROUGHPUT, min_utilisation=0.5)
    async with a_stage(connect, cloud, spec, idle_timeout_s=0.2) as stage:
        await eventually(lambda: stage.zones() == {IOWA_A: 2})
        stage.sees()

        def is_left_when_told_again() -> bool:
            stage.capacity.use(JOB, (NodeUse(US, f"{IOWA_A}-0", 0.9), NodeUse(US, f"{IOWA_A}-1", 0.1)))
            return stage.placed.leaving == {US: {f"{IOWA_A}-1"}}

        await eventually(is_left_when_told_again)
        assert (stage.placed.workers, cloud.removed) == ({US: 1}, [])
        stage.sees(f"{IOWA_A}-1")
        await eventually(lambda: stage.zones() == {IOWA_A: 1})
        assert cloud.removed == [f"{IOWA_A}-1"]
    [abandoned] = [event for event in stage.reported if event.kind == "node_underused"]
    assert f"{IOWA_A}-1" in abandoned.why and "10%" in abandoned.why
