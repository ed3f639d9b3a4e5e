"""Jobs that share a quota: a job that waits for nodes gets those that another gives back at once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from controlplane.allocator.availability import close, is_closed
from controlplane.allocator.events import MachinesGivenBack
from controlplane.allocator.learn import learn
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.allocator.state import Shortage, new_allocator
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.interface import ClusterInfo, PoolPlan, PoolRef
from controlplane.clouds.outcomes import Done, Outcome, QuotaExceeded, Refused, Unreachable
from messages.clusters import ClusterHeartbeat, NodeObservation
from messages.ids import ClusterName, JobName
from runtime.clock import SystemClock
from tests.capacity.builders import a_want
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import eventually

US = ClusterName("us")
OFFER = Offer(US, "us-central1-a", "g2-standard-8", 4, accelerator="nvidia-l4", accelerators_per_node=1)
BESIDE = replace(OFFER, zone="us-central1-b")
ELSEWHERE = replace(OFFER, zone="europe-west4-a")
FIRST, SECOND = JobName("first"), JobName("second")


class TightCloud(FakeCloud):
    """A cloud with a limit of nodes. A pool without nodes exists nevertheless, as at Google."""

    def __init__(self, quota: int) -> None:
        super().__init__("us")
        self.quota = quota
        self.asked = 0
        """The number of requests for machines."""

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome:
        self.asked += 1
        made = await super().create_pool(cluster, replace(plan, size=0))
        return made if not isinstance(made, Done) else self._grow(PoolRef(cluster, plan.name), plan.size)

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome:
        self.asked += size > 0
        return self._grow(pool, size)

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        return self._grow(pool, next(each.size for each in self.pools() if each.ref == pool) - len(nodes))

    def _grow(self, pool: PoolRef, size: int) -> Outcome:
        others = sum(each.size for each in self.pools() if each.ref != pool)
        if others + size > self.quota:
            return QuotaExceeded("GPUS")
        pools = self.infos[pool.cluster].pools
        self._put(pool.cluster, tuple(replace(each, size=size) if each.ref == pool else each for each in pools))
        return Done()

    def size_of(self, job: JobName) -> int:
        return sum(pool.size for pool in self.pools() if pool.labels["tradewind-job"] == job)


def a_capacity(cloud: FakeCloud, *offers: Offer) -> tuple[Capacity, dict[JobName, str]]:
    shortages: dict[JobName, str] = {}
    settings = AllocatorSettings(retry_s=0.01, quiet_s=0.05, relist_s=0.1, doubt_s=0.01)
    capacity = Capacity(
        cloud,
        FleetTerms(offers),
        SystemClock(),
        lambda event: None,
        lambda job, placed: shortages.__setitem__(job, placed.shortage),
        settings,
    )
    return capacity, shortages


async def test_a_job_beyond_the_quota_has_machines_as_soon_as_another_job_has_ended() -> None:
    cloud = TightCloud(quota=2)
    async with asyncio.TaskGroup() as tasks:
        capacity, shortages = a_capacity(cloud, OFFER, BESIDE)
        capacity.start_allocator(tasks, FIRST, a_want(2))
        await eventually(lambda: cloud.size_of(FIRST) == 2)
        capacity.start_allocator(tasks, SECOND, a_want(2))
        await eventually(lambda: "in us-central1-a, us-central1-b is beyond the quota" in shortages.get(SECOND, ""))
        capacity.want(FIRST, a_want(2, "it has succeeded"))
        await eventually(lambda: cloud.size_of(SECOND) == 2)
        await eventually(lambda: not shortages[SECOND])
        capacity.want(SECOND, a_want(2, "it has succeeded"))
        await eventually(lambda: capacity.is_settled(FIRST) and capacity.is_settled(SECOND))
    assert not cloud.pools()


async def test_a_job_beyond_the_quota_has_the_machine_that_another_job_no_longer_wants() -> None:
    cloud = TightCloud(quota=2)
    async with asyncio.TaskGroup() as tasks:
        capacity, shortages = a_capacity(cloud, OFFER)
        capacity.start_allocator(tasks, FIRST, a_want(2))
        await eventually(lambda: cloud.size_of(FIRST) == 2)
        pool = cloud.pools()[0].ref.pool
        capacity.start_allocator(tasks, SECOND, a_want(1))
        await eventually(lambda: "beyond the quota" in shortages.get(SECOND, ""))
        nodes = tuple(NodeObservation(f"node-{number}", f"u{number}", pool=pool, job=FIRST) for number in range(2))
        capacity.hear_heartbeat(ClusterHeartbeat(cluster=US, incarnation="a1", seq=1, nodes=nodes))
        capacity.want(FIRST, a_want(1))
        await eventually(lambda: (cloud.size_of(FIRST), cloud.size_of(SECOND)) == (1, 1))
        for job in (FIRST, SECOND):
            capacity.want(job, a_want(1, "it has succeeded"))
        await eventually(lambda: capacity.is_settled(FIRST) and capacity.is_settled(SECOND))
    assert not cloud.pools()


async def test_jobs_that_all_got_nothing_do_not_wake_each_other() -> None:
    cloud = TightCloud(quota=0)
    async with asyncio.TaskGroup() as tasks:
        capacity, shortages = a_capacity(cloud, OFFER)
        for job in (FIRST, SECOND):
            capacity.start_allocator(tasks, job, a_want(1))
        await eventually(lambda: all("beyond the quota" in shortages.get(job, "") for job in (FIRST, SECOND)))
        listings = cloud.listings
        await eventually(lambda: cloud.listings > listings + 8)
        assert cloud.asked == 2
        for job in (FIRST, SECOND):
            capacity.want(job, a_want(1, "it was stopped"))
        await eventually(lambda: capacity.is_settled(FIRST) and capacity.is_settled(SECOND))


class LoudCloud(FakeCloud):
    """A cloud after whose listings an event arrives before anybody can act on the listing."""

    def __init__(self) -> None:
        super().__init__("us")
        self.listed: Callable[[], None] = lambda: None

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        asyncio.get_running_loop().call_soon(self.listed)
        return await super().clusters()


async def test_what_is_heard_while_an_ended_job_is_let_go_of_disturbs_nobody() -> None:
    cloud = LoudCloud()
    capacity, _ = a_capacity(cloud, OFFER)
    heard: list[ClusterHeartbeat] = []

    def hear() -> None:
        heard.append(ClusterHeartbeat(cluster=US, incarnation="a1", seq=1))
        capacity.hear_heartbeat(heard[-1])

    cloud.listed = hear
    async with asyncio.TaskGroup() as tasks:
        capacity.start_allocator(tasks, FIRST, a_want(1, "it has succeeded"))
        await eventually(lambda: capacity.is_settled(FIRST))
    assert heard


@pytest.mark.parametrize(
    ("shortage", "given", "opens"),
    [
        (Shortage.QUOTA, OFFER, True),
        (Shortage.QUOTA, BESIDE, True),
        (Shortage.QUOTA, ELSEWHERE, False),
        (Shortage.STOCKOUT, OFFER, True),
        (Shortage.STOCKOUT, BESIDE, False),
        (Shortage.REFUSED, BESIDE, False),
    ],
)
def test_what_is_given_back_opens_its_own_stock_and_the_quota_of_its_region(
    shortage: Shortage, given: Offer, opens: bool
) -> None:
    closed = close(new_allocator(SECOND, (OFFER,), wanted=1, at_s=0.0), OFFER.kind, shortage, "no", 1.0)
    learned = learn(closed, MachinesGivenBack(2.0, given.kind))
    assert is_closed(closed, OFFER.kind, 2.0)
    assert is_closed(learned, OFFER.kind, 2.0) is not opens
