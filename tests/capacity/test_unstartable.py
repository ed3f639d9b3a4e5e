"""Workers that cannot start: from a topology to requests to the cloud and the job's shortage."""

import asyncio

from controlplane.capacity.start_policy import explain
from controlplane.clouds.outcomes import with_hint
from messages.clusters import ClusterHeartbeat, NodeObservation, Presence, StartFailure, WorkerObservation
from messages.ids import WorkerId
from tests.capacity.fake_cloud import FakeCloud
from tests.capacity.test_capacity import JOB, US, a_stage
from tests.conftest import eventually


def a_topology(cloud: FakeCloud, seq: int, for_s: float) -> ClusterHeartbeat:
    """Three nodes whose workers have failed to pull the image for `for_s`."""
    [pool] = cloud.pools()
    names = ("n1", "n2", "n3")
    nodes = tuple(NodeObservation(name, uid=name, pool=pool.ref.pool, job=JOB) for name in names)
    failures = [StartFailure("ErrImagePull", "403 Forbidden", "registry/trainer:1", name, for_s) for name in names]
    workers = tuple(
        WorkerObservation(WorkerId(f"w{each.node}-0000"), JOB, Presence.STARTING, start_failure=each)
        for each in failures
    )
    return ClusterHeartbeat(cluster=US, incarnation="a", seq=seq, nodes=nodes, workers=workers)


async def test_nodes_that_cannot_pull_are_given_back_and_the_job_is_told_why() -> None:
    cloud = FakeCloud("us")
    async with a_stage(cloud) as stage:
        await eventually(cloud.pools)
        await eventually(lambda: (JOB, {US: 3}) in stage.placed)
        stage.capacity.hear_heartbeat(a_topology(cloud, 1, for_s=5.0))
        await asyncio.sleep(0)
        assert stage.shortage == ""
        stage.capacity.hear_heartbeat(a_topology(cloud, 2, for_s=20.0))
        denied = StartFailure("ErrImagePull", "403 Forbidden", "registry/trainer:1")
        await eventually(lambda: explain(denied, str)[0] in stage.shortage)
        assert cloud.removed == []
        stage.capacity.hear_heartbeat(a_topology(cloud, 3, for_s=400.0))
        await eventually(lambda: sorted(cloud.removed) == ["n1", "n2", "n3"])
        await eventually(lambda: stage.placed[-1] == (JOB, {}))
    assert [event.kind for event in stage.reported].count("starts_failed") == 1


async def test_nothing_is_bought_in_a_cluster_whose_controller_cannot_start_before_it_is_heard() -> None:
    cloud = FakeCloud()
    async with a_stage(cloud) as stage:
        await eventually(lambda: cloud.listings)
        detail, hint = "its controller cannot start", "grant a role"
        stage.capacity.block(US, detail, hint)
        cloud.add_cluster(US)
        stage.capacity.hear_of_cluster(US, "")
        await eventually(lambda: with_hint(detail, hint) in stage.shortage)
        assert cloud.plans == []
        stage.capacity.hear_heartbeat(ClusterHeartbeat(cluster=US, incarnation="a", seq=1))
        await eventually(lambda: cloud.plans)
    assert stage.shortage == ""
