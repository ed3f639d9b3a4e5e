"""A master's memory of clusters is bounded, because any client of the bus can name one."""

import asyncio

import pytest

from controlplane.job import forgetting
from messages.ids import ClusterName
from tests.capacity.fake_cloud import FakeCloud
from tests.conftest import Connect, eventually
from tests.jobs.test_forgetting import US, a_master
from tests.master.fleet import FakeFleet
from tests.master.process import a_spec

GHOST, SPEAKS = ClusterName("ghost"), ClusterName("speaks")


async def test_a_cluster_that_is_silent_for_long_is_forgotten_unless_a_job_has_something_there(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "CLUSTER_FORGOTTEN_S", 0.5)
    cloud, bus = FakeCloud(US), await connect("master")
    used, ghost = FakeFleet(await connect("used"), US), FakeFleet(await connect("ghost"), GHOST)
    speaks = FakeFleet(await connect("speaks"), SPEAKS)
    async with asyncio.TaskGroup() as tasks, a_master(bus, cloud, keep_jobs=0) as master:
        heard_s = master.context.heard.heard_s
        running = [tasks.create_task(fleet.run(), name=fleet.cluster) for fleet in (used, speaks)]
        await master.service.submit(a_spec("first"))
        await eventually(cloud.pools, what="a pool")
        await eventually(lambda: heard_s(US) is not None, what="its cluster to be heard")
        running[0].cancel()
        ghost.tell_topology()
        await eventually(lambda: heard_s(GHOST) is not None, what="the other one to be heard")
        await eventually(lambda: heard_s(GHOST) is None, what="it to be forgotten")
        assert heard_s(US) is not None and heard_s(SPEAKS) is not None
        running[1].cancel()
