"""The records of a running job are deleted or purged."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from controlplane.jobs.guard import Guard
from controlplane.jobs.records import RecordUnreadable, StoredRecord, decode_spec, read_whole_record
from controlplane.master.term import Term
from messages import subjects
from messages.ids import JobName
from runtime.bus import Bucket, Bus
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventual_answer, eventually
from tests.jobs.test_forgetting import US, a_master, stop
from tests.master.fleet import FakeFleet
from tests.master.process import a_spec

pytestmark = pytest.mark.usefixtures("without_torch")

JOB = JobName("job")
Loss = Callable[[Bus, Bucket], Awaitable[None]]


async def purge_job(bus: Bus, bucket: Bucket) -> None:
    pattern = f"$KV.{subjects.STATE_BUCKET}.jobs.{JOB}.>"
    await bus._link.jetstream.purge_stream(f"KV_{subjects.STATE_BUCKET}", subject=pattern)


async def delete_spec(bus: Bus, bucket: Bucket) -> None:
    await bucket.delete(subjects.spec_key(JOB))


async def spoil_spec(bus: Bus, bucket: Bucket) -> None:
    await bucket.put(subjects.spec_key(JOB), b"\xff{")


async def spoil_world(bus: Bus, bucket: Bucket) -> None:
    await bucket.put(subjects.record_key(JOB), b"\xff{")


async def delete_world(bus: Bus, bucket: Bucket) -> None:
    await bucket.delete(subjects.record_key(JOB))


async def stored_world(bucket: Bucket) -> StoredRecord | None:
    try:
        return await read_whole_record(bucket, JOB)
    except RecordUnreadable:
        return None


@asynccontextmanager
async def running(connect: Connect) -> AsyncIterator[tuple[Term, Bus, Bucket]]:
    bus, fleet = await connect("master"), FakeFleet(await connect("fleet"), US)
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    async with asyncio.TaskGroup() as tasks, a_master(bus, FakeCloud(US), keep_jobs=0) as master:
        beating = tasks.create_task(fleet.run(), name="fleet")
        await master.service.submit(a_spec(JOB))
        await eventually(
            lambda: master.registry.jobs[JOB].state.storage.saved is not None, what="the record to be saved"
        )
        yield master, bus, bucket
        beating.cancel()


@pytest.mark.parametrize(
    "lose",
    [
        purge_job,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (delete_spec, delete_world, spoil_spec, spoil_world)),
    ],
)
async def test_the_records_of_a_live_job_are_written_again(connect: Connect, lose: Loss) -> None:
    async with running(connect) as (master, bus, bucket):
        await lose(bus, bucket)
        await Guard(master.context, master.registry).look()
        spec = await bucket.get(subjects.spec_key(JOB))
        assert spec is not None and decode_spec(JOB, spec.value).name == JOB
        await eventually(
            lambda: master.registry.jobs[JOB].state.storage.saved is not None, what="the record to be saved again"
        )
        world = await eventual_answer(lambda: stored_world(bucket), lambda world: world is not None, "the record")
        assert world is not None
        assert world.record.submitted_at == master.registry.jobs[JOB].state.record.submitted_at
        found = await bucket.revisions(subjects.JOB_RECORDS)
        await Guard(master.context, master.registry).look()
        await eventually(lambda: master.registry.jobs[JOB].state.storage.saved is not None, what="nothing to be lost")
        assert found.keys() == {subjects.spec_key(JOB), subjects.record_key(JOB)}


async def test_a_job_that_the_master_removes_stays_removed(connect: Connect) -> None:
    async with running(connect) as (master, _, bucket):
        guard = Guard(master.context, master.registry)
        master.registry.removing.add(JOB)
        await bucket.delete(subjects.spec_key(JOB))
        await guard.look()
        assert await bucket.get(subjects.spec_key(JOB)) is None
        assert master.registry.remembered() == (), "nor would a later master find it"
        master.registry.removing.discard(JOB)
        await guard.look()
        assert await bucket.get(subjects.spec_key(JOB)) is not None


@pytest.mark.slow
async def test_an_ended_job_whose_records_a_person_deleted_is_left_alone(connect: Connect) -> None:
    async with running(connect) as (master, _, bucket):
        await stop(master, JOB)
        await bucket.delete(subjects.spec_key(JOB))
        await Guard(master.context, master.registry).look()
        assert await bucket.get(subjects.spec_key(JOB)) is None
