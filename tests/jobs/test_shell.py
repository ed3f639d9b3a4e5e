"""A job's shell and records that another master wrote, over a real NATS server."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controlplane.capacity.interface import NoCapacity
from controlplane.job import effects, events
from controlplane.jobs.announcer import Announcer
from controlplane.jobs.context import TermContext
from controlplane.jobs.records import StoredRecord, read_whole_record
from controlplane.jobs.shell import JobShell, ShellTools
from controlplane.jobs.worlds import WorldLimits
from controlplane.lease.keeper import Leadership
from controlplane.stores.servers import StoreServers
from messages import subjects
from messages.decoding import NotStorable
from messages.ids import Epoch, Generation, JobName
from messages.records import Phase, Record, encode_record
from runtime.bus import Bus
from runtime.clock import SystemClock
from runtime.nats_server import NatsServer
from runtime.settings import BusSettings
from tests.conftest import eventual_answer
from tests.stores.conftest import a_place

JOB = JobName("job")
EPOCH = Epoch(100)


def a_record(why: str, epoch: int = EPOCH, generation: int = 1) -> Record:
    return Record(Phase.WAITING, why, Generation(generation), 1, 0.0, Epoch(epoch))


@dataclass
class Bench:
    server: NatsServer
    context: TermContext
    tools: ShellTools
    leads: bool = True
    overwritten: list[bool] = field(default_factory=list)

    def shell(self, adopted: StoredRecord | None = None, limits: WorldLimits | None = None) -> JobShell:
        return JobShell(JOB, self.context, self.tools, adopted, lambda: self.overwritten.append(True), limits)

    async def save(self, shell: JobShell, record: Record) -> events.JobEvent | None:
        work = shell.perform(effects.SaveRecord(record))
        assert work is not None
        return await work

    async def stored(self) -> Record:
        world = await read_whole_record(self.context.bucket, JOB)
        assert world is not None
        return world.record

    async def put(self, value: bytes) -> int:
        return await self.context.bucket.put(subjects.record_key(JOB), value)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with NatsServer(tmp_path) as server:
        bus = await Bus.connect(BusSettings(url=server.url, name="master/test"))
        bucket = await bus.bucket(subjects.STATE_BUCKET, timeout_s=1.0)
        stores = StoreServers(a_place(), lambda job: None, lambda job, reported: None)
        leadership = Leadership(EPOCH, lambda: EPOCH if made.leads else None)
        context = TermContext(bus, bucket, Announcer(bus, EPOCH), SystemClock(), leadership)
        tools = ShellTools(stores, NoCapacity(context.clock))
        made = Bench(server, context, tools)
        yield made
        await bus.close()


async def test_a_record_is_saved_and_saved_again(bench: Bench) -> None:
    shell = bench.shell()
    for why in ("first", "second"):
        assert isinstance(await bench.save(shell, a_record(why)), events.RecordSaved)
        assert (await bench.stored()).why == why


async def test_a_record_that_could_not_be_read_back_is_not_written(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    unreadable = a_record("second", generation=2**53 + 1)
    answer = await bench.save(shell, unreadable)
    with pytest.raises(NotStorable) as refused:
        encode_record(unreadable)
    assert isinstance(answer, events.SaveFailed) and answer.why == str(refused.value)
    assert (await bench.stored()).why == "first"
    assert isinstance(await bench.save(shell, a_record("third")), events.RecordSaved)


async def test_a_write_whose_answer_was_lost_is_written_over(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    await bench.put(encode_record(a_record("second, but nobody told")))
    assert isinstance(await bench.save(shell, a_record("third")), events.RecordSaved)
    assert (await bench.stored()).why == "third"
    assert bench.overwritten == []


async def test_the_record_of_a_newer_master_stays(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("ours"))
    await bench.put(encode_record(a_record("theirs", epoch=EPOCH + 1)))
    assert isinstance(await bench.save(shell, a_record("ours again")), events.SaveFailed)
    assert (await bench.stored()).why == "theirs"
    assert bench.overwritten == []


async def test_a_master_that_lost_the_lease_writes_nothing(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("leading"))
    bench.leads = False
    assert isinstance(await bench.save(shell, a_record("afterwards")), events.SaveFailed)
    assert (await bench.stored()).why == "leading"


async def test_a_last_word_of_the_master_before_is_adopted_not_written_over(bench: Bench) -> None:
    read = a_record("read at the start", epoch=50)
    adopted = StoredRecord(read, await bench.put(encode_record(read)))
    await bench.put(encode_record(a_record("written after it was read", epoch=50, generation=8)))
    assert isinstance(await bench.save(bench.shell(adopted), a_record("ours")), events.SaveFailed)
    assert (await bench.stored()).generation == 8
    assert bench.overwritten == [True]


@pytest.mark.parametrize("garbage", [b"{not json", b"[]", b'{"phase": "dancing"}'])
async def test_garbage_under_the_key_is_written_over(garbage: bytes, bench: Bench) -> None:
    await bench.put(garbage)
    assert isinstance(await bench.save(bench.shell(), a_record("ours")), events.RecordSaved)
    assert (await bench.stored()).why == "ours"


async def test_a_deleted_record_is_made_again(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    await bench.context.bucket.delete(subjects.record_key(JOB))
    assert isinstance(await bench.save(shell, a_record("second")), events.RecordSaved)
    assert (await bench.stored()).why == "second"


async def test_without_the_bus_saving_fails_in_bounded_time_and_works_afterwards(bench: Bench) -> None:
    shell = bench.shell()
    await bench.save(shell, a_record("first"))
    await bench.server.kill()
    assert isinstance(await bench.save(shell, a_record("second")), events.SaveFailed)
    await bench.server.start()
    await eventual_answer(
        lambda: bench.save(shell, a_record("third")),
        lambda reported: isinstance(reported, events.RecordSaved),
        "to be saved",
    )
    assert await bench.stored() == a_record("third")
