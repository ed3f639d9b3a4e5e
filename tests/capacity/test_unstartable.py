"""Capacity and workers that cannot start: from a topology to what the cloud is asked and the job is told."""

import asyncio

from messages.clusters import ClusterHeartbeat, NodeSight, Presence, StartFailure, WorkerSight
from messages.ids import WorkerId
from tests.capacity.fake_cloud import FakeCloud
from tests.capacity.test_capacity import JOB, US, a_stage
from tests.conftest import eventually


def a_topology(cloud: FakeCloud, seq: int, for_s: float) -> ClusterHeartbeat:
    """Three nodes; the image of each worker is denied for so long."""
    [pool] = cloud.pools()
    names = ("n1", "n2", "n3")
    nodes = tuple(NodeSight(name, uid=name, pool=pool.ref.pool, job=JOB) for name in names)
    failures = [StartFailure("ErrImagePull", "403 Forbidden", "registry/trainer:1", name, for_s) for name in names]
    workers = tuple(
        WorkerSight(WorkerId(f"w{each.node}-0000"), JOB, Presence.STARTING, start_failure=each) for each in failures
    )
    return ClusterHeartbeat(cluster=US, incarnation="a", seq=seq, nodes=nodes, workers=workers)


async def test_nodes_that_cannot_pull_are_given_back_and_the_job_is_told_why() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud) as stage:
        await eventually(cloud.pools)
        await eventually(lambda: (JOB, {US: 3}) in stage.placed)
        stage.capacity.see(a_topology(cloud, 1, for_s=5.0))
        await asyncio.sleep(0)
        assert stage.shortage == ""
        stage.capacity.see(a_topology(cloud, 2, for_s=20.0))
        await eventually(lambda: "nodes may not pull the image registry/trainer:1" in stage.shortage)
        assert cloud.removed == []
        stage.capacity.see(a_topology(cloud, 3, for_s=400.0))
        await eventually(lambda: sorted(cloud.removed) == ["n1", "n2", "n3"])
        await eventually(lambda: stage.placed[-1] == (JOB, {}))
    assert [event.kind for event in stage.told].count("starts_failed") == 1


async def test_nothing_is_bought_in_a_cluster_whose_controller_cannot_start_before_it_is_heard() -> None:
    cloud = FakeCloud()
    async with a_stage(cloud) as stage:
        await eventually(lambda: cloud.listings)
        stage.capacity.block(US, "its controller cannot start", "grant a role")
        cloud.add_cluster(US)
        stage.capacity.hear_of_cluster(US, "")
        await eventually(lambda: "its controller cannot start; try: grant a role" in stage.shortage)
        assert cloud.plans == []
        stage.capacity.see(ClusterHeartbeat(cluster=US, incarnation="a", seq=1))
        await eventually(lambda: cloud.plans)
    assert stage.shortage == ""
