"""A term that has ended: late requests and messages are for the next leader."""

import asyncio

import pytest

from controlplane.jobs.errors import HandedOver
from controlplane.jobs.records import encode_spec
from messages import subjects
from messages.ids import Epoch, Generation, JobName
from messages.records import Phase, Record, encode_record
from runtime.bus import Bucket, Bus
from tests.conftest import Connect, eventually
from tests.master.fleet import FakeFleet
from tests.master.process import a_spec
from tests.master.terms import a_context, a_term

pytestmark = pytest.mark.usefixtures("without_torch")

ENDED, LATE = JobName("ended"), JobName("late")


class RunningTerm:
    def __init__(self, bus: Bus, bucket: Bucket) -> None:
        self.term = a_term(a_context(bus, bucket, Epoch(9)))
        self._started = asyncio.Event()
        self._running = asyncio.create_task(self.term.run(self._started), name="master")

    async def begin(self) -> None:
        await self._started.wait()

    async def end(self) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})


async def test_what_is_heard_after_its_end_begins_nothing(connect: Connect) -> None:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    record = Record(Phase.SUCCEEDED, "", Generation(1), 1, 0.0, Epoch(8))
    await bucket.create(subjects.record_key(ENDED), encode_record(record))
    await bucket.create(subjects.spec_key(ENDED), encode_spec(a_spec(ENDED)))
    term = RunningTerm(bus, bucket)
    await term.begin()
    await term.end()
    heard = term.term.context.heard
    fleet = FakeFleet(await connect("cluster"))
    fleet.add(ENDED)
    fleet.tell_topology()
    await eventually(lambda: heard.heard_s(fleet.cluster) is not None, what="the cluster to be heard")
    seen: list[str] = []
    await bucket.watch(subjects.JOB_SPECS, lambda key, _entry: seen.append(key))
    await bucket.create(subjects.spec_key(LATE), encode_spec(a_spec(LATE)))
    await eventually(lambda: subjects.spec_key(LATE) in seen, what="the job to be seen")
    await bucket.put("still", b"there")
    assert LATE not in term.term.registry.jobs
    assert bus.connected


async def test_a_job_that_was_stored_in_the_moment_of_its_end_is_the_next_ones(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await connect("master")
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    term = RunningTerm(bus, bucket)
    await term.begin()
    create = bucket.create

    async def create_and_end(key: str, value: bytes) -> int:
        written = await create(key, value)
        await term.end()
        return written

    with monkeypatch.context() as patch:
        patch.setattr(bucket, "create", create_and_end)
        with pytest.raises(HandedOver, match=LATE):
            await term.term.service.submit(a_spec(LATE))
    heir = RunningTerm(bus, bucket)
    await heir.begin()
    assert LATE in heir.term.registry.jobs
    await heir.end()
