"""A bounded number of ended jobs stays listed; the oldest are forgotten unless the cloud still has machines of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from controlplane.capacity.capacity import Capacity
from controlplane.capacity.shell import FleetTerms
from controlplane.clouds.interface import PoolRef
from controlplane.clouds.outcomes import Outcome
from controlplane.master.term import Term
from messages import subjects
from messages.ids import ClusterName, Epoch, JobName
from runtime.bus import Bucket, Bus
from runtime.clock import SystemClock
from runtime.errors import BusUnavailable
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventually
from tests.master.fleet import FakeFleet
from tests.master.process import a_spec
from tests.master.terms import a_context, a_term

pytestmark = pytest.mark.usefixtures("without_torch")

US = ClusterName("us")
OFFER = Offer(US, "us-central1-a", "g2-standard-8", 4)
EPOCH = Epoch(1)


class ReluctantCloud(FakeCloud):
    """A cloud whose pools are deleted only when the test allows it."""

    def __init__(self) -> None:
        super().__init__(US)
        self.lets_go = asyncio.Event()

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        await self.lets_go.wait()
        return await super().delete_pool(pool)


@asynccontextmanager
async def a_master(bus: Bus, cloud: FakeCloud, *, keep_jobs: int, epoch: Epoch = EPOCH) -> AsyncIterator[Term]:
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    context = a_context(bus, bucket, epoch)
    settings = AllocatorSettings(retry_s=0.01, quiet_s=0.05, relist_s=0.2)
    capacity = Capacity(
        cloud,
        FleetTerms((OFFER,)),
        SystemClock(),
        context.announce,
        lambda job, place: master.place(job, place),
        settings,
    )
    master = a_term(context, capacity, keep_jobs=keep_jobs)
    started = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(master.run(started), name="master")
        await started.wait()
        yield master
        running.cancel()


async def stop(master: Term, name: str) -> None:
    """Stops a job and waits until no worker of it is left."""
    service = master.service
    await service.stop_job(name)
    held = service.job(name)
    await eventually(lambda: held.ended and not held.unsettled, what=f"{name} to end")


async def is_stored(bucket: Bucket, name: str) -> bool:
    return await bucket.get(subjects.spec_key(JobName(name))) is not None


async def test_an_ended_job_is_forgotten_only_when_its_pools_are_gone_too(connect: Connect) -> None:
    cloud, bus = ReluctantCloud(), await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    fleet = FakeFleet(await connect("cluster"), US)
    async with asyncio.TaskGroup() as tasks, a_master(bus, cloud, keep_jobs=0) as master:
        speaking = tasks.create_task(fleet.run(), name="fleet")
        await master.service.submit(a_spec("first"))
        await eventually(cloud.pools, what="a pool")
        await stop(master, "first")
        await master.service.submit(a_spec("second"))
        assert "first" in master.registry.jobs
        assert await is_stored(bucket, "first")
        cloud.lets_go.set()
        await eventually(lambda: not any("first" in pool.ref.pool for pool in cloud.pools()), what="its pools to go")
        await eventually(lambda: master.capacity.is_settled(JobName("first")))
        first = master.registry.jobs[JobName("first")]
        await eventually(lambda: not first.unsettled, what="the cluster to say that it keeps nobody of it")
        await master.service.submit(a_spec("third"))
        assert "first" not in master.registry.jobs
        assert not await is_stored(bucket, "first")
        speaking.cancel()


async def test_a_job_is_forgotten_once_however_many_are_submitted_at_once(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, bus = FakeCloud(US), await connect("master")
    fleet = FakeFleet(await connect("cluster"), US)
    deleted: list[str] = []
    async with asyncio.TaskGroup() as tasks, a_master(bus, cloud, keep_jobs=0) as master:
        speaking = tasks.create_task(fleet.run(), name="fleet")
        await master.service.submit(a_spec("first"))
        await eventually(cloud.pools, what="a pool")
        await stop(master, "first")
        await eventually(lambda: master.capacity.is_settled(JobName("first")))
        delete = master.context.bucket.delete

        async def counted(key: str) -> None:
            deleted.append(key)
            await delete(key)

        monkeypatch.setattr(master.context.bucket, "delete", counted)
        await asyncio.gather(master.registry.forget_oldest(), master.registry.forget_oldest())
        assert sorted(deleted) == sorted(set(deleted)) != []
        assert master.registry.jobs == {}
        speaking.cancel()


@pytest.mark.parametrize("deletions", [0, 1, 2])
async def test_a_master_that_dies_while_it_forgets_leaves_the_whole_job_or_none(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, deletions: int
) -> None:
    cloud, bus, first = FakeCloud(US), await connect("master"), JobName("first")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    fleet = FakeFleet(await connect("cluster"), US)
    async with asyncio.TaskGroup() as tasks:
        speaking = tasks.create_task(fleet.run(), name="fleet")
        async with a_master(bus, cloud, keep_jobs=0) as master:
            await master.service.submit(a_spec(first))
            await eventually(cloud.pools, what="a pool")
            await stop(master, first)
            await eventually(lambda: master.capacity.is_settled(first))
            await bucket.put(subjects.ledger_key(first), b"what it has cost")
            delete, left = master.context.bucket.delete, iter(range(deletions))

            async def until_it_dies(key: str) -> None:
                if next(left, None) is None:
                    raise BusUnavailable("it was killed")
                await delete(key)

            monkeypatch.setattr(master.context.bucket, "delete", until_it_dies)
            await master.registry.forget_oldest()
        async with a_master(bus, cloud, keep_jobs=1, epoch=Epoch(2)) as heir:
            assert (first in heir.registry.jobs) is (deletions == 0)
            if first in heir.registry.jobs:
                assert heir.registry.jobs[first].ended
                assert await bucket.get(subjects.ledger_key(first)) is not None
            else:
                await heir.service.submit(a_spec(first))
                assert await bucket.get(subjects.ledger_key(first)) is None, "it is another one's"
                await eventually(
                    lambda: heir.registry.jobs[first].state.storage.saved is not None, what="its own record"
                )
                assert not heir.registry.jobs[first].ended
        speaking.cancel()
