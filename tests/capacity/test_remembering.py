"""The memory of zones on a real bus: allocators feed it, it is stored, and the next master reads it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.allocator.effects import CreatePool
from controlplane.capacity.remembering import Remembering
from controlplane.catalog.memory import estimate
from controlplane.clouds.outcomes import StockedOut
from messages import subjects
from messages.ids import JobName
from messages.subjects import memory_key
from runtime.bus import Bucket
from runtime.clock import SystemClock
from tests.allocator.planned_stage import offer_in
from tests.allocator.stage import JOB, Stage, a_full_stage, a_stage, of
from tests.conftest import Connect, eventual_answer, eventually
from tests.planning.builders import IOWA_A

HERE = offer_in(IOWA_A)


@asynccontextmanager
async def remembering(bucket: Bucket, *, leads: bool = True) -> AsyncIterator[Remembering]:
    made = Remembering(bucket, SystemClock(), lambda: leads, observe_s=0.01, save_s=0.02)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        yield made
        running.cancel()


def a_refused_stage(outcome: StockedOut) -> Stage:
    stage = a_stage(HERE, wanted=1)
    stage.ticks()
    [create] = of(stage.lists(), CreatePool)
    stage.ends(create, outcome)
    return stage


def seen(found: Remembering) -> float:
    return estimate(found.memory, IOWA_A, "L4", SystemClock().wall_s()).observations


async def test_what_an_allocator_saw_is_there_for_the_next_master(connect: Connect) -> None:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    async with remembering(bucket) as first:
        first.see(JOB, a_refused_stage(StockedOut("none")).allocator)
        await eventually(lambda: seen(first) > 0)
        await eventual_answer(lambda: bucket.get(memory_key(IOWA_A)), bool, "the zone to be written")
    async with remembering(bucket) as second:
        await eventually(lambda: seen(second) > 0)
    reported = estimate(second.memory, IOWA_A, "L4", SystemClock().wall_s())
    assert reported.availability < 0.6


async def test_what_is_learned_while_a_zone_is_written_is_written_too(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    put = bucket.put
    written: list[bytes] = []
    async with remembering(bucket) as found:

        async def slow_put(key: str, value: bytes) -> int:
            written.append(value)
            if len(written) == 1:
                found.see(JobName("another"), a_refused_stage(StockedOut("none")).allocator)
                found.forget(JobName("another"))
            return await put(key, value)

        monkeypatch.setattr(bucket, "put", slow_put)
        found.see(JOB, a_refused_stage(StockedOut("none")).allocator)
        await eventually(lambda: len(written) > 1)
    assert written[0] != written[1]


async def test_what_cannot_be_read_is_forgotten(connect: Connect) -> None:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    await bucket.put(memory_key("us-west1-a"), b"no memory at all")
    async with remembering(bucket) as found:
        found.see(JOB, a_refused_stage(StockedOut("none")).allocator)
        await eventually(lambda: seen(found) > 0)


async def test_the_one_that_does_not_lead_writes_nothing(connect: Connect) -> None:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    async with remembering(bucket, leads=False) as found:
        found.see(JOB, a_refused_stage(StockedOut("none")).allocator)
        await eventually(lambda: seen(found) > 0)
        await asyncio.sleep(0.1)
        assert await bucket.get(memory_key(IOWA_A)) is None


async def test_of_a_job_that_is_let_go_nothing_is_kept_but_what_it_saw(connect: Connect) -> None:
    bucket = await (await connect("master")).bucket(subjects.STATE_BUCKET)
    async with remembering(bucket) as found:
        found.see(JOB, a_refused_stage(StockedOut("none")).allocator)
        await eventually(lambda: seen(found) > 0)
        found.see(JOB, a_full_stage(HERE, wanted=1).allocator)
        before = seen(found)
        found.forget(JOB)
        assert seen(found) > before
