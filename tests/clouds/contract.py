"""The contract of every cloud. To test a cloud, subclass `CloudContract` and give it a `stage`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol, TypeVar

import pytest

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import (
    PROJECT,
    Cloud,
    ClusterInfo,
    ClusterPlan,
    ClusterStatus,
    KubernetesAccess,
    PoolInfo,
    PoolPlan,
    PoolRef,
    PoolStatus,
    Taint,
    system_pool,
)
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    Done,
    NotFound,
    QuotaExceeded,
    Refused,
    StockedOut,
    Unreachable,
)
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL, JOB_LABEL
from tests.conftest import eventual_answer

T = TypeVar("T")


class Stage(Protocol):
    """An empty cloud, and methods that make things happen in it."""

    cloud: Cloud
    cluster: ClusterPlan
    pool: PoolPlan
    """The plan of a pool with one spot node and an accelerator."""
    region: str

    async def another(self) -> Cloud:
        """Open the cloud a second time, like a second master."""

    async def nodes(self, pool: PoolRef) -> set[str]:
        """The names of a pool's nodes, as the cloud reports them."""

    async def stock_out(self, on: bool = True) -> None:
        """Make the zone of `pool` run out of machines, or end that."""

    async def take_quota(self) -> None:
        """Set the quota so that no more accelerators are granted."""

    def holding(self) -> AbstractAsyncContextManager[None]:
        """A context in which operations begin but do not end."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """A context in which the cloud does not answer."""


class CloudContract:
    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        raise NotImplementedError
        yield

    @pytest.fixture
    async def up(self, stage: Stage) -> Stage:
        """Create the stage's cluster."""
        assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        return stage

    async def test_nothing_is_there_before_anything_was_made(self, stage: Stage) -> None:
        assert found(await stage.cloud.clusters()) == []

    async def test_a_cluster_that_was_made_is_listed_with_its_labels(self, up: Stage) -> None:
        (cluster,) = found(await up.cloud.clusters())
        assert (cluster.name, cluster.location) == (up.cluster.name, up.cluster.location)
        assert (cluster.ready, cluster.status) == (True, ClusterStatus.RUNNING)
        assert cluster.labels[FLEET_LABEL] == "a-fleet"
        assert [pool.size for pool in cluster.pools] == [up.cluster.system.size]

    async def test_a_cluster_can_be_reached_with_a_token(self, up: Stage) -> None:
        access = await up.cloud.kubernetes_access(up.cluster.name)
        assert isinstance(access, KubernetesAccess)
        assert access.endpoint.startswith(("https://", "http://"))
        assert await up.cloud.access_token(up.cluster.name)

    async def test_a_cluster_is_made_once(self, up: Stage) -> None:
        assert isinstance(await up.cloud.create_cluster_with_node_pool(up.cluster), AlreadyExists)

    async def test_two_masters_never_both_make_a_cluster(self, stage: Stage) -> None:
        other = await stage.another()
        outcomes = await asyncio.gather(
            stage.cloud.create_cluster_with_node_pool(stage.cluster),
            other.create_cluster_with_node_pool(stage.cluster),
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyExists", "Done"]

    async def test_a_deleted_cluster_is_gone(self, up: Stage) -> None:
        assert await up.cloud.delete_cluster(up.cluster.name) == Done()
        assert found(await up.cloud.clusters()) == []
        assert isinstance(await up.cloud.delete_cluster(up.cluster.name), NotFound)

    async def test_what_does_not_exist_is_not_found(self, up: Stage) -> None:
        nowhere = ClusterName("nowhere")
        assert isinstance(await up.cloud.delete_cluster(nowhere), NotFound)
        assert isinstance(await up.cloud.create_pool(nowhere, up.pool), NotFound)
        assert isinstance(await up.cloud.resize_pool(PoolRef(up.cluster.name, "no-pool"), 1), NotFound)
        assert isinstance(await up.cloud.delete_pool(PoolRef(up.cluster.name, "no-pool")), NotFound)
        assert isinstance(await up.cloud.remove_nodes(PoolRef(up.cluster.name, "no-pool"), ["a"]), NotFound)
        assert isinstance(await up.cloud.kubernetes_access(nowhere), Refused)

    async def test_a_pool_is_as_it_was_planned(self, up: Stage) -> None:
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        pool = await the_pool(up)
        assert (pool.kind, pool.size) == (up.pool.kind, 1)
        assert (pool.status, pool.labels[JOB_LABEL]) == (PoolStatus.RUNNING, "a-job")
        assert len(await up.nodes(pool.ref)) == 1

    async def test_a_pool_is_made_once(self, up: Stage) -> None:
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        assert isinstance(await up.cloud.create_pool(up.cluster.name, up.pool), AlreadyExists)

    async def test_a_pool_grows_and_shrinks(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        for size in (3, 1, 0):
            assert await up.cloud.resize_pool(pool, size) == Done()
            assert (await the_pool(up)).size == size
            assert len(await up.nodes(pool)) == size

    async def test_a_pool_may_begin_empty(self, up: Stage) -> None:
        assert await up.cloud.create_pool(up.cluster.name, replace(up.pool, size=0)) == Done()
        assert (await the_pool(up)).size == 0

    async def test_a_deleted_pool_is_gone(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        assert await up.cloud.delete_pool(pool) == Done()
        assert await pool_or_none(up) is None
        assert isinstance(await up.cloud.delete_pool(pool), NotFound)

    async def test_particular_nodes_are_removed_and_the_pool_shrinks_with_them(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        assert await up.cloud.create_pool(up.cluster.name, replace(up.pool, size=3)) == Done()
        before = sorted(await up.nodes(pool))
        assert await up.cloud.remove_nodes(pool, before[:2]) == Done()
        assert (await the_pool(up)).size == 1
        await until(lambda: up.nodes(pool), {before[2]})

    async def test_without_machines_the_pool_exists_and_can_be_shrunk_and_deleted(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        await up.stock_out()
        outcome = await up.cloud.create_pool(up.cluster.name, up.pool)
        assert isinstance(outcome, StockedOut)
        assert outcome.detail
        seen = await the_pool(up)
        assert (seen.status, seen.size) == (PoolStatus.RUNNING, 1)
        assert await up.nodes(pool) == set()
        assert await up.cloud.resize_pool(pool, 0) == Done()
        assert await up.cloud.delete_pool(pool) == Done()

    async def test_a_pool_that_cannot_grow_says_so_and_grows_later(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        await up.stock_out()
        assert isinstance(await up.cloud.resize_pool(pool, 2), StockedOut)
        assert len(await up.nodes(pool)) == 1
        await up.stock_out(on=False)
        assert await up.cloud.resize_pool(pool, 2) == Done()
        assert len(await up.nodes(pool)) == 2

    async def test_without_quota_it_says_so(self, up: Stage) -> None:
        await up.take_quota()
        outcome = await up.cloud.create_pool(up.cluster.name, up.pool)
        assert isinstance(outcome, QuotaExceeded)
        assert "quota" in outcome.detail.lower()

    async def test_quotas_can_be_read(self, stage: Stage) -> None:
        quotas = await stage.cloud.quotas(stage.region)
        assert not isinstance(quotas, Unreachable | Refused)
        assert all(quota.key.metric and quota.limit >= quota.usage >= 0 for quota in quotas)
        assert {quota.key.scope for quota in quotas} == {stage.region}
        assert isinstance(await stage.cloud.quotas("atlantis-north1"), Refused)
        everywhere = await stage.cloud.quotas(PROJECT)
        assert not isinstance(everywhere, Unreachable | Refused)
        assert {quota.key.scope for quota in everywhere} == {PROJECT}

    async def test_what_one_node_needs_is_part_of_the_quotas_that_were_read(self, stage: Stage) -> None:
        quotas = await stage.cloud.quotas(stage.region)
        assert not isinstance(quotas, Unreachable | Refused)
        needs = stage.cloud.needs(stage.pool, quotas)
        assert needs
        assert needs.keys() <= {quota.key for quota in quotas}
        assert not stage.cloud.needs(stage.pool, ())

    async def test_operations_on_one_pool_go_one_after_the_other(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        outcomes = await asyncio.gather(
            up.cloud.create_pool(up.cluster.name, up.pool),
            up.cloud.resize_pool(pool, 2),
            up.cloud.resize_pool(pool, 3),
        )
        assert list(outcomes) == [Done(), Done(), Done()]
        assert (await the_pool(up)).size == 3

    async def test_more_pools_than_the_cloud_takes_at_once_all_come(self, up: Stage) -> None:
        plans = [replace(up.pool, name=f"{up.pool.name}-{index}") for index in range(7)]
        outcomes = await asyncio.gather(*(up.cloud.create_pool(up.cluster.name, plan) for plan in plans))
        assert outcomes == [Done()] * 7

    async def test_what_another_master_is_doing_is_in_the_way(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        other = await up.another()
        found(await other.clusters())
        async with up.holding():
            first = asyncio.create_task(up.cloud.resize_pool(pool, 2))
            await until(lambda: size_of(up), 2)
            assert isinstance(await other.resize_pool(pool, 3), Busy)
        assert await first == Done()

    async def test_another_master_adopts_what_it_finds(self, up: Stage) -> None:
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        other = await up.another()
        (cluster,) = [each for each in found(await other.clusters()) if each.labels.get(FLEET_LABEL) == "a-fleet"]
        (pool,) = [each for each in cluster.pools if each.labels.get(JOB_LABEL) == "a-job"]
        assert await other.resize_pool(pool.ref, 2) == Done()
        assert await other.delete_pool(pool.ref) == Done()
        assert await other.delete_cluster(cluster.name) == Done()

    async def test_an_operation_that_nobody_waits_for_any_more_continues(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        async with up.holding():
            resize = asyncio.create_task(up.cloud.resize_pool(pool, 2))
            await until(lambda: size_of(up), 2)
            resize.cancel()
            with pytest.raises(asyncio.CancelledError):
                await resize
            assert isinstance(await up.cloud.resize_pool(pool, 3), Busy)
        await until(lambda: count(up, pool), 2)

    async def test_nobody_answers(self, up: Stage) -> None:
        pool = PoolRef(up.cluster.name, up.pool.name)
        async with up.away():
            assert isinstance(await up.cloud.clusters(), Unreachable)
            assert isinstance(await up.cloud.create_pool(up.cluster.name, up.pool), Unreachable)
            assert isinstance(await up.cloud.kubernetes_access(up.cluster.name), Unreachable)
        await until(lambda: is_reached(up.cloud), True)
        assert await up.cloud.create_pool(up.cluster.name, up.pool) == Done()
        assert await up.cloud.delete_pool(pool) == Done()


def a_cluster(location: str) -> ClusterPlan:
    return ClusterPlan(
        name=ClusterName("a-cluster"),
        location=location,
        system=system_pool(location, "e2-standard-4", 1),
        labels={FLEET_LABEL: "a-fleet"},
    )


def a_pool(zone: str) -> PoolPlan:
    return PoolPlan(
        name="a-pool",
        kind=MachineKind(zone, "g2-standard-8", "L4", 1, spot=True),
        size=1,
        labels={JOB_LABEL: "a-job", FLEET_LABEL: "a-fleet"},
        taints=(Taint("nvidia.com/gpu", "present", "NoSchedule"),),
    )


def found(answer: Sequence[ClusterInfo] | Unreachable | Refused) -> list[ClusterInfo]:
    assert not isinstance(answer, Unreachable | Refused), answer
    return list(answer)


async def pool_or_none(stage: Stage) -> PoolInfo | None:
    pools = [pool for cluster in found(await stage.cloud.clusters()) for pool in cluster.pools]
    return next((pool for pool in pools if pool.ref.pool == stage.pool.name), None)


async def the_pool(stage: Stage) -> PoolInfo:
    pool = await pool_or_none(stage)
    assert pool is not None
    return pool


async def is_reached(cloud: Cloud) -> bool:
    return not isinstance(await cloud.clusters(), Unreachable)


async def size_of(stage: Stage) -> int:
    return (await the_pool(stage)).size


async def count(stage: Stage, pool: PoolRef) -> int:
    return len(await stage.nodes(pool))


async def until(ask: Callable[[], Awaitable[T]], wanted: T) -> None:
    await eventual_answer(ask, lambda answer: answer == wanted, repr(wanted))
