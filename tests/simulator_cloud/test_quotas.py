"""A call checks all quotas and is refused as a whole."""

from dataclasses import replace

import pytest

from simulator.cloud.model import refusals
from simulator.cloud.model.names import ClusterKey
from simulator.cloud.model.quotas import Short
from simulator.cloud.model.refusals import Code
from simulator.cloud.model.requests import CreateCluster, CreatePool, PoolWish, ResizePool, SetQuota, StockOut
from simulator.cloud.model.state import PoolSpec, Shortage
from tests.simulator_cloud.stage import (
    CLUSTER,
    L4,
    POOL,
    PROJECT,
    REGION,
    ZONE,
    Stage,
    a_spec,
    a_system_pool,
    some_rules,
)

ANYWHERE = ""


def ordinary(size: int) -> PoolSpec:
    """Nodes with GKE's defaults."""
    return replace(a_spec(size), disk_gb=100, private=False)


@pytest.mark.parametrize(
    ("scope", "metric", "limit", "kind"),
    [
        (REGION, "PREEMPTIBLE_NVIDIA_L4_GPUS", 2, "regional"),
        (REGION, "CPUS", 2 + 2 * 8, "regional"),
        (REGION, "SSD_TOTAL_GB", 10 + 2 * 100, "regional"),
        (REGION, "IN_USE_ADDRESSES", 2, "regional"),
        (REGION, "INSTANCES", 1 + 2, "regional"),
        (ANYWHERE, "GPUS_ALL_REGIONS", 2, "project"),
        (ANYWHERE, "CPUS_ALL_REGIONS", 2 + 2 * 8, "project"),
    ],
)
def test_every_quota_refuses_the_call_that_passes_it(scope: str, metric: str, limit: int, kind: str) -> None:
    stage = Stage().with_cluster()
    stage.ask(SetQuota(PROJECT, scope, metric, limit))
    refusal = stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", ordinary(3))))
    assert refusal.code is Code.PERMISSION_DENIED
    assert refusal.message.startswith(f"Insufficient {kind} quota") and f'"{metric}"' in refusal.message
    assert POOL not in stage.cloud.pools
    stage.grant(CreatePool(CLUSTER, PoolWish("gpus", ordinary(2))))
    stage.pass_s(60.0)
    assert len(stage.running()) == 2
    assert metric in stage.refuse(ResizePool(POOL, 3)).message
    assert stage.pool().groups[0].target == 2


def test_the_refusal_says_what_is_short_and_what_is_left() -> None:
    stage = Stage(some_rules(default_quota=2)).with_cluster()
    refusal = stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", a_spec(3))))
    assert refusal == refusals.short_of_quota(PROJECT, [Short(REGION, "PREEMPTIBLE_NVIDIA_L4_GPUS", 3, 2, 2)])


def test_all_quotas_that_are_too_small_are_named() -> None:
    stage = Stage(some_rules(default_quota=2)).with_cluster()
    stage.ask(SetQuota(PROJECT, ANYWHERE, "GPUS_ALL_REGIONS", 1))
    refusal = stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", a_spec(3))))
    short = [
        Short(REGION, "PREEMPTIBLE_NVIDIA_L4_GPUS", 3, 2, 2),
        Short(ANYWHERE, "GPUS_ALL_REGIONS", 3, 1, 1),
    ]
    assert refusal == refusals.short_of_quota(PROJECT, short)
    assert "(1)" in refusal.message and "(2)" in refusal.message


def test_spot_nodes_take_the_ordinary_quota_where_none_of_their_own_was_granted() -> None:
    stage = Stage().with_cluster()
    stage.ask(SetQuota(PROJECT, REGION, "PREEMPTIBLE_NVIDIA_L4_GPUS", 0))
    stage.ask(SetQuota(PROJECT, REGION, "NVIDIA_L4_GPUS", 1))
    assert 'resource "NVIDIA_L4_GPUS"' in stage.refuse(CreatePool(CLUSTER, PoolWish("gpus", a_spec(2)))).message


def test_standard_disks_have_a_quota_of_their_own_and_the_system_pool_counts() -> None:
    stage = Stage()
    stage.ask(SetQuota(PROJECT, REGION, "DISKS_TOTAL_GB", 50))
    system = a_system_pool()
    system = replace(system, spec=replace(system.spec, disk_type="pd-standard", disk_gb=40))
    both = (system, PoolWish("gpus", replace(a_spec(1), disk_type="pd-standard")))
    other = ClusterKey(PROJECT, REGION, "other")
    stage.grant(CreateCluster(CLUSTER, both, zones=(ZONE,)))
    stage.pass_s(200.0)
    assert 'resource "DISKS_TOTAL_GB"' in stage.refuse(CreateCluster(other, both, zones=(ZONE,))).message


def test_a_quota_that_another_takes_meanwhile_is_told_inside_the_operation() -> None:
    stage = Stage().with_cluster()
    stage.ask(StockOut(L4, on=True))
    created = stage.grant(CreatePool(CLUSTER, PoolWish("gpus", a_spec(1))))
    stage.ask(SetQuota(PROJECT, ANYWHERE, "GPUS_ALL_REGIONS", 0))
    stage.ask(StockOut(L4, on=False))
    stage.pass_s(61.0)
    failed = stage.operation(created).failed
    assert failed is not None
    assert failed.shortage is Shortage.QUOTA
    (refused,) = [node for node in stage.nodes() if node.refused is not None]
    assert refusals.over_quota(ANYWHERE, refused.name, "GPUS_ALL_REGIONS", 0) in failed.message
    stage.ask(SetQuota(PROJECT, ANYWHERE, "GPUS_ALL_REGIONS", None))
    stage.pass_s(80.0)
    assert len(stage.running()) == 1
