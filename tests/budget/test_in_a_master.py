"""Budgets in a master's hands."""

import pytest
from msgspec import structs

from controlplane.master import held
from controlplane.master.desk import Desk
from controlplane.master.refusals import NotRecorded
from messages.criteria import Capacity
from messages.ids import JobName
from messages.jobs import JobSpec
from runtime.errors import BusUnavailable
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect
from tests.master.process import a_spec
from tests.master.test_forgetting import US, a_master

pytestmark = pytest.mark.usefixtures("without_torch")

JOB = JobName("bounded")


def bounded(usd: float = 10.0) -> JobSpec:
    return structs.replace(a_spec(JOB, 3, least=1), capacity=Capacity(max_usd_total=usd))


async def test_what_is_not_recorded_is_not_told_as_done(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> int:
        raise BusUnavailable("the server is away")

    async with a_master(await connect("master"), FakeCloud(US), keep_jobs=1) as master:
        desk = Desk(master)
        await desk.submit(bounded())
        await desk.scale(JOB, 3)
        monkeypatch.setattr(master.bucket, "update", away)
        monkeypatch.setattr(held, "DECISION_TIMEOUT_S", 0.05)
        with pytest.raises(NotRecorded, match="The change is not recorded yet") as refusal:
            await desk.scale(JOB, 2)
        assert refusal.value.hint == f"tradewind status {JOB}"
        with pytest.raises(NotRecorded):
            await desk.budgets.raise_to(JOB, 20.0)
        with pytest.raises(NotRecorded):
            await desk.stop_job(JOB)
