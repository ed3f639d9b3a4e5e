"""Compute's REST API: quotas, instance groups, and the end of particular nodes."""

from typing import Any

import pytest

from simulator.cloud.model import refusals
from tests.conftest import eventual_answer
from tests.simulator_cloud.running import CLUSTER, PROJECT, REGION, ZONE, Running, a_pool, running_cloud

BASE = f"/compute/v1/projects/{PROJECT}"


async def group_path(cloud: Running) -> str:
    (url,) = (await cloud.pool()).instance_group_urls
    return str(url).partition("googleapis.com")[2]


async def until_done(cloud: Running, operation: dict[str, Any]) -> dict[str, Any]:
    path = str(operation["selfLink"]).partition("googleapis.com")[2]

    async def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = await cloud.get(path, token=cloud.token)
        return found if found["status"] == "DONE" else None

    return await eventual_answer(ended)


async def test_exactly_the_named_nodes_are_deleted_and_the_target_shrinks_with_them() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(4)
        nodes = [node["name"] for node in await cloud.nodes()]
        path = await group_path(cloud)
        body = {"instances": [f"zones/{ZONE}/instances/{name}" for name in nodes[1:3]]}
        operation = await cloud.post(f"{path}/deleteInstances", body, token=cloud.token)
        assert operation["operationType"] == "compute.instanceGroupManagers.deleteInstances"
        ended = await until_done(cloud, operation)
        assert ended["progress"] == 100
        assert [node["name"] for node in await cloud.nodes()] == [nodes[0], nodes[3]]
        group = await cloud.get(path, token=cloud.token)
        assert group["targetSize"] == 2
        assert group["status"]["isStable"]
        assert (await cloud.pool()).initial_node_count == 4, "GKE does not hear of it"
        assert set(cloud.region.nodes) & set(nodes) == {nodes[0], nodes[3]}


async def test_strangers_are_refused_or_passed_over() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(2)
        path = f"{await group_path(cloud)}/deleteInstances"
        first = (await cloud.nodes())[0]["name"]
        body: dict[str, Any] = {"instances": [f"zones/{ZONE}/instances/{name}" for name in (first, "stranger")]}
        refused = await cloud.post(path, body, token=cloud.token, status=400)
        assert "not a member" in refused["error"]["message"]
        assert len(await cloud.nodes()) == 2
        await cloud.post(path, body | {"skipInstancesOnValidationError": True}, token=cloud.token)
        assert first not in [node["name"] for node in await cloud.nodes()]


async def test_what_is_not_there_is_not_found() -> None:
    async with running_cloud() as cloud:
        headers = {"Authorization": f"Bearer {cloud.token}"}
        for path in (
            f"{BASE}/zones/{ZONE}/instanceGroupManagers/none",
            f"{BASE}/zones/{ZONE}/operations/none",
            f"{BASE}/regions/mars-north1",
        ):
            async with cloud.http.get(f"{cloud.serving.url}{path}", headers=headers) as response:
                assert response.status == 404
                error = (await response.json())["error"]
                assert error["errors"][0]["reason"] == "notFound"
                assert error["message"] == refusals.no_resource(path.removeprefix("/compute/v1/")).message


async def test_quotas_are_told_with_what_is_used_of_them() -> None:
    async with running_cloud(quotas=f"{REGION}:PREEMPTIBLE_NVIDIA_L4_GPUS=7") as cloud:
        await (await cloud.with_cluster()).with_pool(2)
        reported = await cloud.get(f"{BASE}/regions/{REGION}", token=cloud.token)
        quotas = {each["metric"]: (each["limit"], each["usage"]) for each in reported["quotas"]}
        assert quotas["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (7.0, 2.0)
        assert quotas["NVIDIA_L4_GPUS"] == (64.0, 0.0)
        assert quotas["CPUS"] == (96.0, 18.0)
        assert quotas["PREEMPTIBLE_CPUS"] == (0.0, 0.0)
        assert quotas["SSD_TOTAL_GB"] == (500.0, 200.0)
        assert quotas["IN_USE_ADDRESSES"] == (8.0, 3.0)
        reported = await cloud.get(BASE, token=cloud.token)
        quotas = {each["metric"]: (each["limit"], each["usage"]) for each in reported["quotas"]}
        assert quotas == {"CPUS_ALL_REGIONS": (200.0, 18.0), "GPUS_ALL_REGIONS": (64.0, 2.0)}


@pytest.mark.parametrize(
    ("order", "status", "reason"),
    [
        ({"disabled": True}, 403, "accessNotConfigured"),
        ({"throttled": True}, 429, "rateLimitExceeded"),
        ({"away": True}, 503, "backendError"),
    ],
)
async def test_compute_refuses_as_google_does(order: dict[str, bool], status: int, reason: str) -> None:
    async with running_cloud() as cloud:
        await cloud.post("/control/api", {"api": "compute", **order})
        headers = {"Authorization": f"Bearer {cloud.token}"}
        async with cloud.http.get(f"{cloud.serving.url}{BASE}/regions/{REGION}", headers=headers) as response:
            assert response.status == status
            assert (await response.json())["error"]["errors"][0]["reason"] == reason


async def test_compute_wants_a_token_too() -> None:
    async with running_cloud() as cloud, cloud.http.get(f"{cloud.serving.url}{BASE}/regions/{REGION}") as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await response.json())["error"]["status"] == "UNAUTHENTICATED"


async def test_a_pool_that_is_waiting_for_machines_still_has_its_group() -> None:
    async with running_cloud(default_capacity=0) as cloud:
        await cloud.with_cluster()
        await cloud.done(await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(2)))
        group = await cloud.get(await group_path(cloud), token=cloud.token)
        assert group["targetSize"] == 2
        assert group["currentActions"] == {"none": 0, "creating": 2}


async def test_the_errors_of_a_group_are_listed_while_gke_still_waits() -> None:
    async with running_cloud(default_capacity=1, stockout_s=100.0, retry_s=100.0) as cloud:
        await cloud.with_cluster()
        operation = await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(3))
        await cloud.until_nodes(1)
        answer = await cloud.get(f"{await group_path(cloud)}/listErrors", token=cloud.token)
        waiting = {node["name"] for node in await cloud.nodes("waiting")}
        named = {error["instanceActionDetails"]["instance"].rpartition("/")[2]: error for error in answer["items"]}
        assert named.keys() == waiting
        assert {error["error"]["code"] for error in answer["items"]} == {"ZONE_RESOURCE_POOL_EXHAUSTED"}
        for name, error in named.items():
            assert error["error"]["message"] == refusals.stocked_out(PROJECT, ZONE, name)
        assert all(error["timestamp"] >= operation.start_time for error in answer["items"])
        managed = await cloud.post(f"{await group_path(cloud)}/listManagedInstances", {}, token=cloud.token)
        actions = [each["currentAction"] for each in managed["managedInstances"]]
        assert sorted(actions) == ["CREATING", "CREATING", "NONE"]


async def test_a_refusal_can_be_ordered_for_the_next_calls_of_a_method() -> None:
    async with running_cloud() as cloud:
        order = {"api": "compute", "method": "regions.get", "code": "INVALID_ARGUMENT", "message": "not ready"}
        await cloud.post("/control/refuse", order | {"reason": "resourceNotReady"})
        headers = {"Authorization": f"Bearer {cloud.token}"}
        async with cloud.http.get(f"{cloud.serving.url}{BASE}/regions/{REGION}", headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["errors"][0]["reason"] == "resourceNotReady"
        await cloud.get(f"{BASE}/regions/{REGION}", token=cloud.token)
