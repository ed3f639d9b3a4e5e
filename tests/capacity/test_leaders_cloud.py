"""A master that has lost the lease changes nothing in the cloud."""

import pytest

from controlplane.capacity.leaders_cloud import NOT_LEADING, LeadersCloud
from controlplane.capacity.observer import Observer
from controlplane.clouds.interface import ClusterPlan, PoolRef, system_pool
from controlplane.clouds.outcomes import Done
from messages.ids import ClusterName
from runtime.clock import SystemClock
from tests.capacity.fake_cloud import FakeCloud

HERE = ClusterName("here")
THERE = ClusterName("there")


@pytest.mark.parametrize("leads", [True, False])
async def test_only_a_leader_makes_clusters(leads: bool) -> None:
    cloud = FakeCloud("here")
    led = LeadersCloud(cloud, lambda: leads, Observer(cloud, SystemClock()))
    plan = ClusterPlan(THERE, "us-central1-a", system_pool("here", "e2-small", 1))
    assert await led.create_cluster_with_node_pool(plan) == (Done() if leads else NOT_LEADING)
    assert cloud.made == ([THERE] if leads else [])


async def test_the_one_that_lost_the_lease_may_look_but_not_touch() -> None:
    cloud = FakeCloud("here")
    led = LeadersCloud(cloud, lambda: False, Observer(cloud, SystemClock()))
    pool = PoolRef(HERE, "pool")
    for change in (
        led.delete_cluster(HERE),
        led.resize_pool(pool, 1),
        led.remove_nodes(pool, ("a",)),
        led.delete_pool(pool),
    ):
        assert await change == NOT_LEADING
    assert await led.kubernetes_access(HERE) == NOT_LEADING
    assert await led.clusters() == await FakeCloud("here").clusters()
