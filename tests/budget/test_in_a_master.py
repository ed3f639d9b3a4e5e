"""Budgets in a master: ledgers that cannot be read, machines that cannot be seen, changes that are not recorded."""

import time

import pytest
from msgspec import structs

from controlplane.clouds.observations import look_at
from controlplane.clouds.outcomes import Unreachable
from controlplane.jobs import runner as held
from controlplane.jobs.errors import CostUnknown, NotRecorded
from controlplane.ledger import books
from controlplane.master.term import Term
from messages import subjects
from messages.criteria import Capacity
from messages.ids import JobName
from messages.jobs import JobSpec
from runtime.errors import BusUnavailable
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventually
from tests.jobs.test_forgetting import US, a_master
from tests.master.process import a_spec

pytestmark = pytest.mark.usefixtures("without_torch")

JOB, FREE = JobName("bounded"), JobName("unbounded")


def bounded(usd: float = 10.0) -> JobSpec:
    return structs.replace(a_spec(JOB, 3, least=1), capacity=Capacity(max_usd_total=usd))


def paused(master: Term, job: JobName) -> str | None:
    return master.registry.jobs[job].state.record.paused


async def test_a_ledger_that_cannot_be_read_pauses_a_job_with_a_budget_and_no_other(connect: Connect) -> None:
    bus, cloud = await connect("master"), FakeCloud(US)
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    async with a_master(bus, cloud, keep_jobs=1) as master:
        service = master.service
        await service.submit(bounded())
        await service.submit(a_spec(FREE, 3, least=1))
        await service.scale(JOB, 1)
        await service.scale(FREE, 1)
        for job in (JOB, FREE):
            await bucket.put(subjects.ledger_key(job), b"torn")
        await master.books.observe(await look_at(cloud, time.time()), "a-fleet")
        await eventually(lambda: paused(master, JOB) is not None, what="a pause")
        for job in (JOB, FREE):
            with pytest.raises(CostUnknown, match=f"'{job}'"):
                await service.cost(job)
            with pytest.raises(CostUnknown):
                await service.budgets.view(job)
        with pytest.raises(CostUnknown):
            await service.budgets.raise_to(JOB, 50.0)
        with pytest.raises(CostUnknown):
            await service.scale(JOB, 2)
        assert (await service.scale(FREE, 2)).wanted == 2
        assert paused(master, FREE) is None

        await bucket.delete(subjects.ledger_key(JOB))
        assert (await service.budgets.raise_to(JOB, 10.0)).paused == "", "it is judged before the answer"


NO_ANSWER = "nobody answers"


class SilentCloud(FakeCloud):
    async def machines(self) -> Unreachable:
        return Unreachable(NO_ANSWER)


async def test_that_nobody_can_see_the_machines_is_said_with_every_figure(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "BLIND_S", 0.0)
    cloud = SilentCloud(US)
    async with a_master(await connect("master"), cloud, keep_jobs=1) as master:
        service = master.service
        await service.submit(bounded())
        assert (await service.cost(JOB)).note == "", "nobody has looked yet"
        await master.books.observe(await look_at(cloud, time.time()), "a-fleet")
        for note in ((await service.cost(JOB)).note, (await service.budgets.view(JOB)).note):
            assert f"({NO_ANSWER})" in note


async def test_what_is_not_recorded_is_not_told_as_done(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> int:
        raise BusUnavailable("the server is away")

    async with a_master(await connect("master"), FakeCloud(US), keep_jobs=1) as master:
        service = master.service
        await service.submit(bounded())
        await service.scale(JOB, 3)
        monkeypatch.setattr(master.context.bucket, "update", away)
        monkeypatch.setattr(held, "DECISION_TIMEOUT_S", 0.05)
        with pytest.raises(NotRecorded, match=f"'{JOB}'") as refusal:
            await service.scale(JOB, 2)
        assert refusal.value.hint == f"tradewind status {JOB}"
        with pytest.raises(NotRecorded):
            await service.budgets.raise_to(JOB, 20.0)
        with pytest.raises(NotRecorded):
            await service.stop_job(JOB)
