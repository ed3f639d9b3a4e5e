"""Tests beyond the contract: Google's own refusals, and a whole region behind the cloud."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.quotas import too_small
from controlplane.clouds.gke.settings import GkeConfig
from controlplane.clouds.interface import PROJECT, KubernetesAccess, PoolRef, PoolStatus, QuotaKey
from controlplane.clouds.outcomes import Busy, Done, NotFound, QuotaExceeded, Refused, Shortfall, Throttled, Unreachable
from controlplane.fleet.files import read_fleet
from controlplane.fleet.interpretation import cluster_plans, open_cloud
from simulator.cloud.server import serve_cloud
from simulator.region.region import Region
from simulator.region.settings import RegionSettings
from tests.clouds.contract import a_cluster, a_pool, found, until
from tests.clouds.simulated import REGION, SECRET, ZONE, SimulatedStage, quick_cloud, settings_for

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[SimulatedStage]:
    async with SimulatedStage.open(tmp_path) as stage:
        yield stage


async def test_a_project_that_does_not_exist_is_refused_with_what_to_correct(stage: SimulatedStage) -> None:
    cloud = await GkeCloud.open(msgspec.structs.replace(stage.settings, project="another-project"))
    answers: list[Any] = [await cloud.clusters(), await cloud.create_cluster_with_node_pool(stage.cluster)]
    await cloud.close()
    for answer in answers:
        assert isinstance(answer, Refused)
        assert "another-project" in answer.detail
        assert "cloud.project" in answer.hint


@pytest.mark.parametrize("api", ["gke", "compute"])
async def test_an_api_that_is_disabled_is_refused_with_what_to_run(stage: SimulatedStage, api: str) -> None:
    await stage.order("api", {"api": api, "disabled": True})
    answer = await (stage.cloud.clusters() if api == "gke" else stage.cloud.quotas(REGION))
    assert isinstance(answer, Refused)
    wanted = ("services enable", "container.googleapis.com", "compute.googleapis.com")
    assert all(value in answer.hint for value in wanted)


async def test_too_many_requests_are_throttled(stage: SimulatedStage) -> None:
    await stage.order("api", {"api": "gke", "throttled": True})
    assert isinstance(await stage.cloud.create_cluster_with_node_pool(stage.cluster), Throttled)


async def test_a_location_that_does_not_exist_is_refused(stage: SimulatedStage) -> None:
    answer = await stage.cloud.create_cluster_with_node_pool(a_cluster("mars-north1-a"))
    assert isinstance(answer, Refused)
    assert "location" in answer.hint


async def test_a_quota_that_is_too_small_refuses_the_call_and_tells_what_is_left(stage: SimulatedStage) -> None:
    assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
    await stage.order("quota", {"region": REGION, "metric": "SSD_TOTAL_GB", "limit": 220})
    await stage.order("quota", {"metric": "GPUS_ALL_REGIONS", "limit": 2})
    large = await stage.another(GkeConfig())
    outcome = await large.create_pool(stage.cluster.name, replace(stage.pool, size=3))
    assert isinstance(outcome, QuotaExceeded)
    assert outcome.in_call
    disks, gpus = outcome.shortfalls
    assert disks == Shortfall("SSD_TOTAL_GB", True, 300.0, 220.0 - GkeConfig().system_disk_gb)
    assert gpus == Shortfall("GPUS_ALL_REGIONS", False, 3.0, 2.0)
    assert too_small(disks, 220.0) in outcome.detail
    assert f"console.cloud.google.com/iam-admin/quotas?project={stage.settings.project}" in outcome.detail
    resized = await stage.cloud.resize_pool(PoolRef(stage.cluster.name, stage.pool.name), 1)
    assert isinstance(resized, NotFound)


async def test_what_a_node_needs_is_what_the_cloud_counts_for_it(stage: SimulatedStage) -> None:
    cloud = stage.cloud
    assert await cloud.create_cluster_with_node_pool(stage.cluster) == Done()

    async def used() -> dict[QuotaKey, float]:
        read = [await cloud.quotas(scope) for scope in (REGION, PROJECT)]
        found = [quota for quotas in read if not isinstance(quotas, Unreachable | Refused) for quota in quotas]
        needs.update(cloud.needs(stage.pool, found))
        return {quota.key: quota.usage for quota in found}

    needs: dict[QuotaKey, int] = {}
    before = await used()
    assert await cloud.create_pool(stage.cluster.name, replace(stage.pool, size=1)) == Done()
    after = await used()
    assert {key: after[key] - before[key] for key in after if after[key] > before[key]} == needs


async def test_a_cluster_survives_tokens_of_two_seconds(tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path, token_s=2.0) as stage:
        async with stage.holding():
            creation = asyncio.create_task(stage.cloud.create_cluster_with_node_pool(stage.cluster))
            tokens: set[str] = set()

            async def seen() -> int:
                tokens.add(await stage.cloud.access_token(stage.cluster.name))
                return len(tokens)

            await until(seen, 3)
        assert await creation == Done()


async def test_the_example_fleet_is_made_in_the_simulator(stage: SimulatedStage) -> None:
    fleet = read_fleet(EXAMPLES / "fleet-simulator.yaml")
    environ = {
        "TRADEWIND_GKE_PROJECT": stage.settings.project,
        "TRADEWIND_GKE_ENDPOINT": stage.settings.endpoint,
        "TRADEWIND_GKE_COMPUTE_URL": stage.settings.compute_url,
        "TRADEWIND_GKE_CREDENTIALS_FILE": str(stage.settings.credentials_file),
        "TRADEWIND_GKE_POLL_FIRST_S": "0.02",
    }
    cloud = await open_cloud(fleet, environ)
    plan = cluster_plans(fleet)[0]
    assert await cloud.create_cluster_with_node_pool(plan) == Done()
    (cluster,) = found(await cloud.clusters())
    await cloud.close()
    assert (cluster.name, cluster.labels) == (plan.name, plan.labels)
    assert [pool.kind.zone for pool in cluster.pools] == [fleet.clusters[0].zones[0]]


async def test_our_token_opens_the_kubernetes_api_of_a_cluster_that_we_made(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    async with (
        Region(RegionSettings(region=REGION, secret=SECRET)) as region,
        serve_cloud(quick_cloud(region.url, key)) as serving,
        aiohttp.ClientSession() as http,
    ):
        cloud = await GkeCloud.open(settings_for(serving, key))
        cluster, pool = a_cluster(ZONE), a_pool(ZONE)
        assert await cloud.create_cluster_with_node_pool(cluster) == Done()
        assert await cloud.create_pool(cluster.name, pool) == Done()
        access = await cloud.kubernetes_access(cluster.name)
        assert isinstance(access, KubernetesAccess)
        headers = {"Authorization": f"Bearer {await cloud.access_token(cluster.name)}"}
        async with http.get(f"{access.endpoint}/api/v1/nodes", headers=headers) as response:
            nodes = (await response.json())["items"]
        labelled = [node for node in nodes if node["metadata"]["labels"].get("tradewind-job") == "a-job"]
        assert len(nodes) == 2
        assert [node["status"]["capacity"]["nvidia.com/gpu"] for node in labelled] == ["1"]
        assert await cloud.delete_cluster(cluster.name) == Done()
        await cloud.close()


async def test_a_new_cluster_is_kept_from_upgrades_and_its_protection_can_be_renewed(stage: SimulatedStage) -> None:
    assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
    first = found(await stage.cloud.clusters())[0].protected_until
    assert first is not None
    assert await stage.cloud.protect_from_upgrades(stage.cluster.name, first + 1000.0) == Done()
    assert found(await stage.cloud.clusters())[0].protected_until == pytest.approx(first + 1000.0, abs=0.001)
    assert await stage.cloud.create_pool(stage.cluster.name, stage.pool) == Done()
    body = {"cluster": stage.cluster.name, "pool": stage.pool.name}
    await stage.order("upgrade", body, status=409)


async def test_a_protection_beyond_the_end_of_support_is_refused(stage: SimulatedStage) -> None:
    assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
    answer = await stage.cloud.protect_from_upgrades(stage.cluster.name, time.time() + 2000 * 86_400.0)
    assert isinstance(answer, Refused) and "support" in answer.detail


async def test_a_pool_in_an_upgrade_is_updating_and_takes_no_other_operation(stage: SimulatedStage) -> None:
    assert await stage.cloud.create_cluster_with_node_pool(stage.cluster) == Done()
    assert await stage.cloud.create_pool(stage.cluster.name, stage.pool) == Done()
    pool = PoolRef(stage.cluster.name, stage.pool.name)
    async with stage.holding():
        await stage.order("upgrade", {"cluster": pool.cluster, "pool": pool.pool, "forced": True})
        (info,) = [each for each in found(await stage.cloud.clusters())[0].pools if each.ref == pool]
        assert info.status is PoolStatus.UPDATING
        assert isinstance(await stage.cloud.resize_pool(pool, 3), Busy)
