"""Stockouts that GKE reports late or never are known within seconds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.clouds.interface import PoolRef, PoolStatus
from controlplane.clouds.outcomes import Busy, Done, PartlyDone, QuotaExceeded, Refused, StockedOut, Unexplained
from tests.clouds.contract import count, found, the_pool, until
from tests.clouds.simulated import REGION, ZONE, SimulatedStage

FOR_EVER_S = 100_000.0
LATE = {"stockout_s": FOR_EVER_S, "give_up_s": FOR_EVER_S}
"""Settings with which GKE's operations do not end while machines are missing."""


@asynccontextmanager
async def a_stage(folder: Path, **rules: Any) -> AsyncIterator[SimulatedStage]:
    """A stage with its cluster and frequent reads of refusals."""
    async with SimulatedStage.open(folder, **rules) as stage:
        stage.settings = msgspec.structs.replace(stage.settings, errors_first_s=0.02, errors_most_s=0.05)
        stage.cloud = await stage.another()
        assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
        yield stage


def ref_of(stage: SimulatedStage) -> PoolRef:
    return PoolRef(stage.cluster.name, stage.pool.name)


async def has_capacity(stage: SimulatedStage, capacity: int | None) -> None:
    await stage.order("capacity", {"zone": ZONE, "accelerator": "nvidia-l4", "capacity": capacity})


async def test_a_stockout_is_known_while_gke_still_waits_and_nothing_is_tried_any_more(tmp_path: Path) -> None:
    async with a_stage(tmp_path, **LATE) as stage:
        await stage.stock_out()
        outcome = await stage.cloud.create_pool(stage.cluster.name, replace(stage.pool, size=3))
        assert isinstance(outcome, PartlyDone)
        assert outcome.size == 0
        assert isinstance(outcome.reason, StockedOut)
        assert ZONE in outcome.reason.detail
        await stage.stock_out(on=False)
        assert (await the_pool(stage)).size == 0
        assert isinstance(await stage.cloud.resize_pool(ref_of(stage), 1), Busy), "GKE's own operation runs on"


@pytest.mark.slow
async def test_nodes_that_were_granted_are_kept_when_others_are_refused(tmp_path: Path) -> None:
    async with a_stage(tmp_path, boot_s=0.5, **LATE) as stage:
        await has_capacity(stage, 2)
        outcome = await stage.cloud.create_pool(stage.cluster.name, replace(stage.pool, size=5))
        assert isinstance(outcome, PartlyDone)
        assert outcome.size == 2
        await until(lambda: count(stage, ref_of(stage)), 2)
        assert (await the_pool(stage)).size == 2


async def test_a_smaller_request_after_a_refusal_for_quota_is_watched_as_well(tmp_path: Path) -> None:
    async with a_stage(tmp_path, **LATE) as stage:
        assert await stage.cloud.create_pool(stage.cluster.name, replace(stage.pool, size=0)) == Done()
        await stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 2})
        assert isinstance(await stage.cloud.resize_pool(ref_of(stage), 4), QuotaExceeded)
        await stage.stock_out()
        async with asyncio.timeout(10):
            outcome = await stage.cloud.resize_pool(ref_of(stage), 2)
        assert isinstance(outcome, PartlyDone)


@pytest.mark.slow
async def test_a_quota_that_ran_out_is_known_as_early(tmp_path: Path) -> None:
    """Somebody uses the quota after the call was granted, before the group requests machines."""
    async with a_stage(tmp_path, group_s=0.5, **LATE) as stage, asyncio.TaskGroup() as tasks:
        creating = tasks.create_task(stage.cloud.create_pool(stage.cluster.name, stage.pool))
        await until(lambda: exists(stage), True)
        await stage.take_quota()
        outcome = await creating
        assert isinstance(outcome, PartlyDone)
        assert isinstance(outcome.reason, QuotaExceeded)


async def exists(stage: SimulatedStage) -> bool:
    [cluster] = found(await stage.cloud.clusters())
    return any(pool.ref == ref_of(stage) for pool in cluster.pools)


@pytest.mark.slow
async def test_the_group_of_a_new_pool_is_waited_for(tmp_path: Path) -> None:
    async with a_stage(tmp_path, group_s=0.3, **LATE) as stage:
        await stage.stock_out()
        assert isinstance(await stage.cloud.create_pool(stage.cluster.name, stage.pool), PartlyDone)


@pytest.mark.slow
async def test_refusals_from_before_an_operation_do_not_count(tmp_path: Path) -> None:
    async with a_stage(tmp_path, stockout_s=0.2, boot_s=0.3) as stage:
        await stage.stock_out()
        await stage.cloud.create_pool(stage.cluster.name, stage.pool)
        await stage.stock_out(on=False)
        await until(lambda: is_done(stage, 2), True)
        assert len(await stage.nodes(ref_of(stage))) == 2


async def is_done(stage: SimulatedStage, size: int) -> bool:
    outcome = await stage.cloud.resize_pool(ref_of(stage), size)
    assert isinstance(outcome, Done | Busy), outcome
    return outcome == Done()


@pytest.mark.slow
async def test_without_compute_the_end_of_the_operation_tells(tmp_path: Path) -> None:
    async with a_stage(tmp_path, stockout_s=0.3) as stage:
        await stage.stock_out()
        await stage.order("api", {"api": "compute", "away": True})
        assert isinstance(await stage.cloud.create_pool(stage.cluster.name, stage.pool), StockedOut)


async def test_slots_without_a_machine_are_given_up_though_gke_is_busy(tmp_path: Path) -> None:
    """No watch follows the operation that still runs, as after a restart."""
    async with a_stage(tmp_path, **LATE) as stage:
        await has_capacity(stage, 1)
        ask = asyncio.create_task(stage.cloud.create_pool(stage.cluster.name, replace(stage.pool, size=3)))
        await until(lambda: is_listed(stage), True)
        ask.cancel()
        await until(lambda: count(stage, ref_of(stage)), 1)
        other = await stage.another()
        assert isinstance(await other.resize_pool(ref_of(stage), 0), Busy), "one has a machine"
        assert await other.resize_pool(ref_of(stage), 1) == Done()
        assert (await the_pool(stage)).size == 1
        assert len(await stage.nodes(ref_of(stage))) == 1


async def is_listed(stage: SimulatedStage) -> bool:
    return "OK" in await stage.calls("CreateNodePool")


@pytest.mark.slow
async def test_nobody_pays_for_a_pool_that_gke_is_too_busy_to_delete(tmp_path: Path) -> None:
    async with a_stage(tmp_path, **LATE) as stage:
        await has_capacity(stage, 1)
        outcome = await stage.cloud.create_pool(stage.cluster.name, replace(stage.pool, size=2))
        assert isinstance(outcome, PartlyDone)
        await until(lambda: count(stage, ref_of(stage)), 1)
        assert isinstance(await stage.cloud.delete_pool(ref_of(stage)), Busy)
        await until(lambda: count(stage, ref_of(stage)), 0)


@pytest.mark.slow
async def test_a_pool_that_was_created_in_error_lacks_nodes_until_they_come(tmp_path: Path) -> None:
    async with a_stage(tmp_path, stockout_s=0.1, retry_s=0.1) as stage:
        await stage.stock_out()
        other = await stage.another_that_looks_late()
        assert isinstance(await other.create_pool(stage.cluster.name, stage.pool), StockedOut)
        short = await the_pool(stage)
        assert (short.status, short.size) == (PoolStatus.RUNNING, 1)
        assert "GCE_STOCKOUT" in short.detail
        assert short.shortage is not None
        assert isinstance(short.shortage.reason, StockedOut)
        assert 0.0 <= short.shortage.age_s < 30.0
        await stage.stock_out(on=False)
        await until(lambda: count(stage, ref_of(stage)), 1)
        healed = await the_pool(stage)
        assert "GCE_STOCKOUT" in healed.detail, "GKE still says so"
        assert (healed.status, healed.shortage) == (PoolStatus.RUNNING, None)


async def test_a_listing_asks_for_no_errors_of_pools_that_have_their_nodes(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        assert await stage.cloud.create_pool(stage.cluster.name, stage.pool) == Done()
        before = len(await stage.calls("instanceGroupManagers.listErrors", "compute"))
        await the_pool(stage)
        assert len(await stage.calls("instanceGroupManagers.listErrors", "compute")) == before


async def test_a_group_that_is_not_ready_is_busy(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        assert await stage.cloud.create_pool(stage.cluster.name, stage.pool) == Done()
        order = {"api": "compute", "method": "instanceGroupManagers.deleteInstances", "code": "INVALID_ARGUMENT"}
        await stage.order("refuse", order | {"message": "The resource is not ready", "reason": "resourceNotReady"})
        assert isinstance(await stage.cloud.remove_nodes(ref_of(stage), ["a"]), Busy)


async def test_a_failed_precondition_is_judged_by_its_text(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        refuse = {"method": "CreateNodePool", "code": "FAILED_PRECONDITION"}
        await stage.order("refuse", refuse | {"message": "IP space of 'pods' is exhausted."})
        refused = await stage.cloud.create_pool(stage.cluster.name, stage.pool)
        assert isinstance(refused, Refused)
        assert "pod range" in refused.hint
        text = "The moon is in the wrong phase."
        await stage.order("refuse", refuse | {"message": text})
        assert await stage.cloud.create_pool(stage.cluster.name, stage.pool) == Unexplained(text)
