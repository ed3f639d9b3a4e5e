"""The allocators' hands: what the core asks for reaches the cloud, and what the cloud did reaches the job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from controlplane.allocator.offers import Offer
from controlplane.allocator.state import AllocatorSettings
from controlplane.capacity.capacity import Capacity, Placement
from controlplane.capacity.fleet_keeper import FleetKeeper
from controlplane.clouds.interface import JOB_LABEL, ClusterPlan, PoolPlan, Taint
from messages.events import Event
from messages.ids import ClusterName, JobName
from runtime.clock import SystemClock
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import eventually

JOB = JobName("demo")
US = ClusterName("us")
OFFER = Offer(US, "us-central1-a", "g2-standard-8", 4, accelerator="nvidia-l4", accelerators_per_node=1)


class Stage:
    def __init__(self, cloud: FakeCloud) -> None:
        self.placed: list[tuple[JobName, Placement]] = []
        self.told: list[Event] = []
        self.capacity = Capacity(
            cloud,
            (OFFER,),
            _with_bigger_disks,
            SystemClock(),
            self.told.append,
            lambda job, placement: self.placed.append((job, placement)),
            AllocatorSettings(retry_s=0.01, quiet_s=0.05, relist_s=0.2),
        )


def _with_bigger_disks(plan: PoolPlan) -> PoolPlan:
    return replace(plan, disk_gb=500)


@asynccontextmanager
async def a_stage(cloud: FakeCloud, *, wanted: int = 3, ended: str | None = None) -> AsyncIterator[Stage]:
    stage = Stage(cloud)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_hold(stage, wanted, ended))
        yield stage
        running.cancel()


async def _hold(stage: Stage, wanted: int, ended: str | None) -> None:
    async with asyncio.TaskGroup() as tasks:
        stage.capacity.hold(tasks, JOB, wanted, ended)


async def test_a_job_gets_a_pool_with_what_the_fleet_adds_and_a_taint_that_keeps_others_away() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud):
        await eventually(lambda: cloud.plans)
    plan = cloud.plans[0]
    assert (plan.size, plan.zone, plan.disk_gb, plan.labels[JOB_LABEL]) == (3, "us-central1-a", 500, JOB)
    assert plan.taints == (Taint(JOB_LABEL, JOB, "NoSchedule"),)


async def test_the_job_is_told_where_its_workers_will_be() -> None:
    async with a_stage(FakeCloud("us")) as stage:
        await eventually(lambda: (JOB, {US: 3}) in stage.placed)
    assert any("pool of 3" in event.text for event in stage.told)


async def test_nothing_is_asked_for_before_the_cloud_has_said_what_there_is() -> None:
    cloud = FakeCloud("us")
    cloud.refusals = 2
    async with a_stage(cloud):
        await eventually(lambda: cloud.plans)
    assert cloud.refusals == 0


async def test_when_the_job_has_ended_its_pools_go_and_it_is_settled() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud) as stage:
        await eventually(cloud.pools)
        stage.capacity.wants(JOB, 3, "it has succeeded")
        await eventually(lambda: not cloud.pools())
        await eventually(lambda: stage.capacity.is_settled(JOB))
    assert stage.placed[-1] == (JOB, {})


async def test_a_job_that_ended_under_an_earlier_master_leaves_no_pool_either() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud):
        await eventually(cloud.pools)
    async with a_stage(cloud, ended="it has failed"):
        await eventually(lambda: not cloud.pools())


async def test_clusters_are_made_or_adopted_and_then_installed() -> None:
    cloud = FakeCloud("us")
    installed: list[ClusterName] = []
    told: list[Event] = []

    async def install(cluster: ClusterName) -> None:
        installed.append(cluster)

    plans = [ClusterPlan(ClusterName(name), "here", "e2", 1, "default", "default") for name in ("us", "eu")]
    await FleetKeeper(cloud, plans, install, told.append).run()
    assert cloud.made == ["eu"]
    assert sorted(installed) == ["eu", "us"]
    assert sorted(event.kind for event in told) == ["cluster_ready", "cluster_ready"]
