"""Private nodes, authorised networks and image streaming, as GKE stores and enforces them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from google.cloud import container_v1
from google.cloud.container_v1.services.cluster_manager.transports import ClusterManagerGrpcAsyncIOTransport

from controlplane.bootstrap.bootstrap import Bootstrap
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from controlplane.clouds.gke.cloud import GkeCloud
from controlplane.clouds.gke.settings import ClusterConfig, GkeConfig, NodeConfig
from controlplane.clouds.interface import ClusterPlan, KubernetesAccess
from controlplane.clouds.outcomes import Done, Refused, Unreachable
from messages.ids import ClusterName
from simulator.cloud.server import serve_cloud
from simulator.kubernetes.identities import may_enter, networks
from simulator.region.region import Region
from simulator.region.settings import RegionSettings
from tests.clouds.contract import a_cluster, a_pool
from tests.clouds.simulated import PROJECT, REGION, SECRET, ZONE, SimulatedStage, quick_cloud, settings_for


@asynccontextmanager
async def a_cloud_with_a_region(folder: Path, **authorized: tuple[str, ...]) -> AsyncIterator[GkeCloud]:
    key = folder / "key.json"
    async with (
        Region(RegionSettings(region=REGION, secret=SECRET)) as region,
        serve_cloud(quick_cloud(region.url, key)) as serving,
    ):
        cloud = await GkeCloud.open(settings_for(serving, key), authorizing(**authorized))
        yield cloud
        await cloud.close()


def authorizing(**networks: tuple[str, ...]) -> GkeConfig:
    """Networks that may reach each cluster, by its name."""
    return GkeConfig(
        clusters={ClusterName(name): ClusterConfig(authorized_networks=those) for name, those in networks.items()}
    )


async def reached(cloud: GkeCloud, plan: ClusterPlan) -> bool:
    access = await cloud.kubernetes_access(plan.name)
    assert isinstance(access, KubernetesAccess)
    headers = {"Authorization": f"Bearer {await cloud.access_token(plan.name)}"}
    try:
        async with aiohttp.ClientSession() as http, http.get(f"{access.endpoint}/api/v1/nodes", headers=headers) as got:
            return got.status == 200
    except aiohttp.ClientError:
        return False


async def test_only_authorised_networks_reach_the_kubernetes_api(tmp_path: Path) -> None:
    networks = {"elsewhere": ("203.0.113.0/24",), "here": ("203.0.113.0/24", "127.0.0.0/8")}
    async with a_cloud_with_a_region(tmp_path, **networks) as cloud:
        elsewhere, here = (replace(a_cluster(ZONE), name=ClusterName(name)) for name in networks)
        for plan in (elsewhere, here):
            assert await cloud.create_cluster_with_node_pool(plan) == Done()
        assert [await reached(cloud, elsewhere), await reached(cloud, here)] == [False, True]


@pytest.mark.slow
async def test_a_master_outside_the_authorised_networks_is_told_which_key_to_look_at(tmp_path: Path) -> None:
    plan = a_cluster(ZONE)
    async with a_cloud_with_a_region(tmp_path, **{plan.name: ("203.0.113.0/24",)}) as cloud:
        assert await cloud.create_cluster_with_node_pool(plan) == Done()
        settings = BootstrapSettings(fleet="a-fleet", image="tradewind:1", call_s=5.0)
        bootstrap = Bootstrap(cloud, settings, Secrets(nats_url="nats://127.0.0.1:4222"), lambda place, outcome: None)
        outcome = await bootstrap.install(Place(plan.name, REGION))
    assert isinstance(outcome, Unreachable)
    assert "authorized_networks" in outcome.detail


def test_pods_of_the_cluster_enter_from_anywhere() -> None:
    allowed = networks(["203.0.113.0/24"])
    assert may_enter(allowed, "127.0.0.1", "Bearer simsa.claim.signature")
    assert not may_enter(allowed, "127.0.0.1", "Bearer sim.1.signature")
    assert may_enter(None, "127.0.0.1", "")


async def test_a_network_that_is_no_cidr_block_is_refused_by_the_cloud(tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path) as stage:
        plan = a_cluster(ZONE)
        cloud = await stage.another(authorizing(**{plan.name: ("203.0.113.7/24",)}))
        answer = await cloud.create_cluster_with_node_pool(plan)
    assert isinstance(answer, Refused)


@pytest.mark.slow
@pytest.mark.parametrize("private", [True, False])
async def test_private_nodes_have_no_external_address(tmp_path: Path, private: bool) -> None:
    async with SimulatedStage.open(tmp_path) as stage:
        cloud = await stage.another(GkeConfig(nodes=NodeConfig(private=private)))
        await cloud.create_cluster_with_node_pool(a_cluster(ZONE))
        assert await cloud.create_pool(a_cluster(ZONE).name, a_pool(ZONE)) == Done()
        assert isinstance(stage.cloud, GkeCloud)
        headers = await stage.cloud.api_headers()
        url = f"{stage.settings.compute_url}/projects/{PROJECT}/aggregated/instances"
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
            items = (await response.json())["items"]
        interfaces = [each["networkInterfaces"][0] for scope in items.values() for each in scope["instances"]]
    assert len(interfaces) == 2
    assert {"accessConfigs" in interface for interface in interfaces} == {not private}


@pytest.mark.slow
async def test_image_streaming_is_kept_by_the_pool(tmp_path: Path) -> None:
    async with SimulatedStage.open(tmp_path) as stage:
        cloud = await stage.another(GkeConfig(nodes=NodeConfig(image_streaming=True)))
        await cloud.create_cluster_with_node_pool(a_cluster(ZONE))
        assert await cloud.create_pool(a_cluster(ZONE).name, a_pool(ZONE)) == Done()
        assert isinstance(stage.cloud, GkeCloud)
        pools = await pools_in(stage)
    assert [pool.config.gcfs_config.enabled for pool in pools if pool.name == a_pool(ZONE).name] == [True]


async def pools_in(stage: SimulatedStage) -> list[Any]:
    assert isinstance(stage.cloud, GkeCloud)
    metadata = [(name.lower(), value) for name, value in (await stage.cloud.api_headers()).items()]
    async with grpc.aio.insecure_channel(stage.settings.endpoint) as channel:
        client = container_v1.ClusterManagerAsyncClient(transport=ClusterManagerGrpcAsyncIOTransport(channel=channel))
        parent = f"projects/{PROJECT}/locations/{ZONE}/clusters/{a_cluster(ZONE).name}"
        answer = await client.list_node_pools(parent=parent, retry=None, metadata=metadata)
    return list(answer.node_pools)
