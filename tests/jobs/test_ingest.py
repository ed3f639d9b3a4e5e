"""What a master remembers of clusters: bounded, for anybody on the bus can name one."""

import asyncio

import pytest

from controlplane.capacity.capacity import Capacity
from controlplane.jobs import ingest as hearing
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
    monkeypatch.setattr(hearing, "CLUSTER_FORGOTTEN_S", 0.5)
    cloud, bus = FakeCloud(US), await connect("master")
    used, ghost = FakeFleet(await connect("used"), US), FakeFleet(await connect("ghost"), GHOST)
    speaks = FakeFleet(await connect("speaks"), SPEAKS)
    async with asyncio.TaskGroup() as tasks, a_master(bus, cloud, keep_jobs=0) as master:
        running = [tasks.create_task(fleet.run(), name=fleet.cluster) for fleet in (used, speaks)]
        await master.service.submit(a_spec("first"))
        await eventually(cloud.pools, what="a pool")
        await eventually(lambda: US in master.ingest.clusters, what="its cluster to be heard")
        running[0].cancel()
        ghost.tell_topology()
        await eventually(lambda: GHOST in master.ingest.clusters, what="the other one to be heard")
        assert isinstance(master.capacity, Capacity) and master.capacity.heard_s(GHOST) is not None
        await eventually(lambda: GHOST not in master.ingest.clusters, what="it to be forgotten")
        assert set(master.ingest.clusters) == {US, SPEAKS}
        assert (master.capacity.heard_s(GHOST), master.capacity.heard_s(US) is None) == (None, False)
        running[1].cancel()
