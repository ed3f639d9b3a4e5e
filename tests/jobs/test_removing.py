"""An ended job is removed with all that is stored of it, and a new job can have its name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from controlplane.api.service import MACHINES_LEFT
from controlplane.jobs.errors import JobExists, JobUnknown, RemoveRefused, SpecRefused
from controlplane.master.term import Term
from messages import subjects
from messages.events import FLEET, Event
from messages.ids import Epoch, Generation, JobName, Rank
from messages.workers import WorkerPhase, WorkerReady, WorkerStatus
from messages.worlds import GatheredProgress, Progress, RankProgress
from runtime.bus import Bus
from runtime.nats_server import NatsServer
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventual_answer, eventually
from tests.jobs.test_forgetting import US, ReluctantCloud, a_master, stop
from tests.master.fleet import FakeFleet, fake_fleet
from tests.master.process import a_spec, running_master

pytestmark = pytest.mark.usefixtures("without_torch")

FIRST = JobName("first")
DAY_S = 86_400.0


@asynccontextmanager
async def a_stage(connect: Connect, cloud: FakeCloud | None = None) -> AsyncIterator[tuple[Term, FakeFleet]]:
    bus = await connect("master")
    await bus.ensure_stream(subjects.EVENTS_STREAM, subjects.EVENTS_STREAM_SUBJECTS, 10_000_000, DAY_S)
    await bus.ensure_stream(subjects.LOGS_STREAM, subjects.LOGS_STREAM_SUBJECTS, 10_000_000, DAY_S)
    fleet = FakeFleet(await connect("cluster"), US)
    async with asyncio.TaskGroup() as tasks, a_master(bus, cloud or FakeCloud(US), keep_jobs=10) as master:
        speaking = tasks.create_task(fleet.run(), name="fleet")
        yield master, fleet
        speaking.cancel()


async def run_to_its_end(master: Term, fleet: FakeFleet) -> None:
    await master.service.submit(a_spec(FIRST))
    await eventually(lambda: fleet.of(FIRST), what="a worker")
    await stop(master, FIRST)
    await eventually(lambda: not master.registry.holds_machines(master.registry.jobs[FIRST]), what="its pools to go")


async def events_of(bus: Bus, scope: str) -> list[str]:
    stored = bus.replay(subjects.EVENTS_STREAM, subjects.event(scope))
    return [received.message.kind async for _, received in stored if isinstance(received.message, Event)]


async def lines_of(bus: Bus, job: JobName) -> int:
    return len([1 async for _ in bus.replay(subjects.LOGS_STREAM, subjects.log(job))])


async def test_nothing_of_a_removed_job_is_left_and_others_keep_what_they_have(connect: Connect) -> None:
    async with a_stage(connect) as (master, fleet):
        other = JobName("other")
        await master.service.submit(a_spec(other))
        await run_to_its_end(master, fleet)
        for job in (FIRST, other):
            await fleet.log(job, 0, ("a line",))
            await master.context.bucket.put(subjects.ledger_key(job), b"what it has cost")
        removed = await master.service.remove(FIRST)
        assert (removed.name, removed.phase) == (FIRST, "stopped")
        with pytest.raises(JobUnknown):
            master.service.view(FIRST)
        assert [view.name for view in master.service.job_list().jobs] == [other]
        assert set(await master.context.bucket.entries("jobs.*.*")) == {
            subjects.spec_key(other),
            subjects.record_key(other),
        }
        assert set(await master.context.bucket.entries("ledger.*")) == {subjects.ledger_key(other)}
        assert (await lines_of(master.context.bus, FIRST), await lines_of(master.context.bus, other)) == (0, 1)
        assert await events_of(master.context.bus, FIRST) == []
        assert "job_submitted" in await events_of(master.context.bus, other)
        await eventually(lambda: master.context.announcer.idle, what="its removal to be told")
        assert "job_removed" in await events_of(master.context.bus, FLEET)


async def test_a_job_that_has_not_ended_is_not_removed_and_what_to_do_is_said(connect: Connect) -> None:
    async with a_stage(connect) as (master, fleet):
        await master.service.submit(a_spec(FIRST))
        for ask in (master.service.remove(FIRST), master.service.submit(a_spec(FIRST), replace=True)):
            with pytest.raises(RemoveRefused, match=f"'{FIRST}' is {master.service.view(FIRST).phase}") as refused:
                await ask
            assert refused.value.hint.endswith(f"tradewind stop {FIRST}")
        assert not master.registry.jobs[FIRST].ended
        await stop(master, FIRST)
        await eventually(lambda: not fleet.of(FIRST), what="its workers to go")


@pytest.mark.slow
async def test_a_job_whose_machines_are_still_there_is_not_removed(connect: Connect) -> None:
    cloud = ReluctantCloud()
    async with a_stage(connect, cloud) as (master, fleet):
        await master.service.submit(a_spec(FIRST))
        await eventually(lambda: fleet.of(FIRST), what="a worker")
        await stop(master, FIRST)
        with pytest.raises(RemoveRefused, match=MACHINES_LEFT):
            await master.service.remove(FIRST)
        assert FIRST in master.registry.jobs
        cloud.lets_go.set()
        await eventually(
            lambda: not master.registry.holds_machines(master.registry.jobs[FIRST]), what="its pools to go"
        )
        await master.service.remove(FIRST)


async def test_an_ended_job_is_replaced_only_if_that_was_asked_for_and_the_new_one_can_be_used(
    connect: Connect,
) -> None:
    async with a_stage(connect) as (master, fleet):
        await run_to_its_end(master, fleet)
        service, before = master.service, master.registry.jobs[FIRST]
        with pytest.raises(JobExists):
            await service.submit(a_spec(FIRST))
        with pytest.raises(SpecRefused):
            await service.submit(structs.replace(a_spec(FIRST), replica=64), replace=True)
        assert master.registry.jobs[FIRST] is before
        new = await service.submit(a_spec(FIRST, 1), replace=True)
        assert (new.phase, new.wanted, new.generation) == ("waiting", 1, 0)
        assert master.registry.jobs[FIRST] is not before
        await eventually(lambda: master.context.announcer.idle, what="its events to be stored")
        assert (await events_of(master.context.bus, FIRST))[0] == "job_submitted"
        with pytest.raises(RemoveRefused):
            await service.submit(a_spec(FIRST), replace=True)
        assert (await service.submit(a_spec("never-seen"), replace=True)).name == "never-seen"


@pytest.mark.slow
async def test_a_worker_of_the_removed_job_that_comes_back_teaches_the_new_one_nothing(connect: Connect) -> None:
    async with a_stage(connect) as (master, fleet):
        await run_to_its_end(master, fleet)
        earlier = master.registry.jobs[FIRST].state.record.submitted_at
        await master.service.submit(a_spec(FIRST, 1), replace=True)
        await eventually(lambda: master.registry.jobs[FIRST].state.record.phase == "running", what="the new one to run")
        stray = fleet.add(FIRST)
        name = stray.status.worker
        stray.status = WorkerStatus(
            name, US, FIRST, seq=900, phase=WorkerPhase.READY, generation=Generation(70), submitted_at=earlier
        )
        fleet.bus.publish(subjects.worker_fact(US, name, "ready"), WorkerReady(stray.status))
        ranks = (RankProgress(Rank(0), 900, 900, 0.5, 8, 900.0, 900.0),)
        reports = (Progress(FIRST, name, Generation(70), ranks),)
        fleet.bus.publish(subjects.progress(FIRST), GatheredProgress(FIRST, US, reports))
        await eventually(lambda: name not in fleet.workers, what="it to be sent away")
        await eventually(lambda: master.ingest.dropped["unknown_worker"], what="its progress to be dropped")
        held = master.registry.jobs[FIRST]
        assert (held.state.record.generation, held.progress.step) == (1, None)
        assert name not in held.state.workers


@pytest.mark.slow
async def test_a_job_is_removed_once_however_often_that_is_asked_at_once(connect: Connect) -> None:
    async with a_stage(connect) as (master, fleet):
        await run_to_its_end(master, fleet)
        answers = await asyncio.gather(*(master.service.remove(FIRST) for _ in range(3)), return_exceptions=True)
        assert any(not isinstance(answer, BaseException) for answer in answers)
        await master.service.submit(a_spec(FIRST))
        assert not master.registry.jobs[FIRST].ended


@pytest.mark.slow
async def test_a_removed_job_stays_removed_for_the_next_master(connect: Connect) -> None:
    async with a_stage(connect) as (master, fleet):
        await run_to_its_end(master, fleet)
        await master.service.remove(FIRST)
        async with a_master(await connect("heir"), FakeCloud(US), keep_jobs=10, epoch=Epoch(2)) as heir:
            assert heir.registry.jobs == {}


@pytest.mark.slow
async def test_a_name_is_freed_and_used_again_over_the_api(nats_server: NatsServer, tmp_path: Path) -> None:
    async with running_master(nats_server.url, tmp_path) as (_, api), fake_fleet(nats_server.url) as fleet:
        await api.submit(a_spec(FIRST, 1))
        await api.until_phase(FIRST, "running")
        status, problem = await api.ask("DELETE", f"/v1/jobs/{FIRST}")
        assert (status, problem["hint"].endswith(f"tradewind stop {FIRST}")) == (409, True)
        await fleet.log(FIRST, 0, ("of the first",))
        fleet.exit(FIRST)
        await api.until_phase(FIRST, "succeeded")
        status, _ = await eventual_answer(
            lambda: api.ask("POST", "/v1/jobs?replace=1", a_spec(FIRST, 1)), lambda got: got[0] == 201, "it to be free"
        )
        view = await api.until_phase(FIRST, "running")
        assert (view.generation, await api.lines(f"/v1/jobs/{FIRST}/logs")) == (1, [])
        assert (await api.kinds(FIRST)).count("job_submitted") == 1
        fleet.exit(FIRST)
        await api.until_phase(FIRST, "succeeded")
        await eventually(lambda: not fleet.of(FIRST), what="its workers to be released")
        _, removed = await eventual_answer(
            lambda: api.ask("DELETE", f"/v1/jobs/{FIRST}"), lambda got: got[0] == 200, "it to be removed"
        )
        assert (removed["name"], removed["phase"]) == (FIRST, "succeeded")
        assert (await api.ask("DELETE", f"/v1/jobs/{FIRST}"))[0] == 404
        assert (await api.ask("GET", "/v1/jobs"))[1]["jobs"] == []
