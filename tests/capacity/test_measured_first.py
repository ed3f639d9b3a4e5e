"""A job that already trains when its master starts gets its first plan when its steps are measured."""

import asyncio

from controlplane.allocator.demand import Demand
from controlplane.capacity.advisor import PricedFleet
from controlplane.capacity.plan_inputs import PlanInputs
from controlplane.clouds.gke.price_api import known_prices
from controlplane.planning.criteria import criteria_of
from controlplane.planning.profiles import profile_of
from controlplane.throughput.profile import Compute, Profile
from messages import subjects
from runtime.clock import SystemClock
from tests.allocator.stage import EU, US
from tests.capacity.builders import a_want
from tests.capacity.fake_cloud import FakeCloud, LooksAtOnce
from tests.capacity.test_planned_capacity import JOB, OFFERS, Stage, prices
from tests.conftest import Connect, eventually
from tests.planning.builders import IOWA_A
from tests.specs import a_planned_spec

MEASURED = Profile(compute={"L4": Compute(0.25)}, gradient_bytes=4096, global_batch=16)
NEVER_S = 600.0


async def test_the_first_plan_waits_for_what_trainers_measure(connect: Connect) -> None:
    cloud = FakeCloud(US, EU)
    cloud.prices = prices(iowa=100_000, holland=900_000)
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    known = known_prices({"TRADEWIND_PRICES_CACHE": "/nowhere/prices.json"}, None)
    planning = PlanInputs(
        cloud, LooksAtOnce(cloud), PricedFleet(OFFERS, known), bucket, SystemClock(), lambda: True, lambda event: None
    )
    stage, spec = Stage(cloud, planning, OFFERS), a_planned_spec()
    demand = Demand(criteria_of(spec), profile_of(spec))

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(planning.run())
            stage.capacity.start_allocator(tasks, JOB, a_want(2), demand=demand, measured_within_s=NEVER_S)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run())
        await eventually(
            lambda: any("waiting for measured steps" in each.why for each in stage.capacity.allocators().values())
        )
        stage.capacity.measure(JOB, MEASURED)
        await eventually(lambda: stage.zones() == {IOWA_A: 2})
        planned_by = stage.capacity.allocators()[JOB].demand
        assert planned_by is not None
        assert planned_by.profile == MEASURED
        running.cancel()
