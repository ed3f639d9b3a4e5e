"""A NATS server with the tools of a master, for tests of stored records."""

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
from messages.ids import Epoch, JobName
from messages.records import Record
from runtime.bus import Bus
from runtime.clock import SystemClock
from runtime.nats_server import NatsServer
from runtime.settings import BusSettings
from tests.stores.conftest import a_place

JOB = JobName("job")
EPOCH = Epoch(100)


@dataclass
class Bench:
    """A NATS server and the tools of a master that leads, to save records of one job."""

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
