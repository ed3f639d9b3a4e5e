"""GKE's API, asked by Google's own client."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import container_v1

from simulator.cloud.model import refusals
from simulator.cloud.model.names import ClusterKey
from tests.simulator_cloud.running import (
    CLUSTER,
    LOCATION,
    OTHER,
    POOL,
    PROJECT,
    REGION,
    ZONE,
    a_cluster,
    a_pool,
    running_cloud,
)

EVERYWHERE = f"projects/{PROJECT}/locations/-"


async def test_a_cluster_is_created_listed_and_deleted() -> None:
    async with running_cloud() as cloud:
        operation = await cloud.call("create_cluster", parent=LOCATION, cluster=a_cluster())
        assert operation.operation_type.name == "CREATE_CLUSTER"
        assert operation.status.name in ("PENDING", "RUNNING")
        assert operation.target_link.endswith(CLUSTER)
        ended = await cloud.done(operation)
        assert not ended.error.code
        assert ended.end_time > ended.start_time
        cluster = await cloud.call("get_cluster", name=CLUSTER)
        assert cluster.status.name == "RUNNING"
        assert cluster.endpoint == f"{cloud.region.url}/k8s/tw"
        assert cluster.location == REGION
        assert dict(cluster.resource_labels) == {"fleet": "demo"}
        assert [pool.name for pool in cluster.node_pools] == ["system"]
        assert cluster.current_node_count == 1
        listed = await cloud.call("list_clusters", parent=EVERYWHERE)
        assert [each.name for each in listed.clusters] == ["tw"]
        elsewhere = await cloud.call("list_clusters", parent=f"projects/{PROJECT}/locations/{OTHER}")
        assert not elsewhere.clusters
        await cloud.done(await cloud.call("delete_cluster", name=CLUSTER))
        assert not (await cloud.call("list_clusters", parent=EVERYWHERE)).clusters
        assert not cloud.region.clusters
        assert not cloud.region.nodes


async def test_a_cluster_can_be_asked_for_with_a_count_alone() -> None:
    async with running_cloud() as cloud:
        cluster = {"name": "tw", "initial_node_count": 2, "locations": [ZONE]}
        await cloud.done(await cloud.call("create_cluster", parent=LOCATION, cluster=cluster))
        (pool,) = (await cloud.call("get_cluster", name=CLUSTER)).node_pools
        assert pool.name == "default-pool"
        assert pool.config.machine_type == "e2-medium"
        assert len(cloud.region.nodes) == 2


async def test_a_pool_says_of_itself_what_was_asked_for() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(2, kubelet_config={"shutdown_grace_period_seconds": 120})
        pool = await cloud.pool()
        assert pool.status.name == "RUNNING"
        assert list(pool.locations) == [ZONE]
        assert pool.initial_node_count == 2
        assert pool.config.spot
        assert pool.config.disk_size_gb == 50
        assert dict(pool.config.labels) == {"tradewind-job": "mnist"}
        (url,) = pool.instance_group_urls
        assert f"/projects/{PROJECT}/zones/{ZONE}/instanceGroupManagers/gke-tw-gpus-" in url
        node = next(node for node in cloud.region.nodes.values() if node["labels"].get("tradewind-job"))
        assert node["capacity"]["nvidia.com/gpu"] == "1"
        assert node["shutdown_grace_s"] == 120
        assert {"key": "tradewind", "value": "gpu", "effect": "NoSchedule"} in node["taints"]
        assert node["provider_id"].startswith(f"gce://{PROJECT}/{ZONE}/gke-tw-gpus-")
        listed = await cloud.call("list_node_pools", parent=CLUSTER)
        assert [each.name for each in listed.node_pools] == ["system", "gpus"]


async def test_a_pool_is_resized_updated_and_deleted() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(1)
        resized = await cloud.done(await cloud.call("set_node_pool_size", name=POOL, node_count=3))
        assert resized.operation_type.name == "SET_NODE_POOL_SIZE"
        assert len(await cloud.nodes()) == 3
        assert (await cloud.pool()).initial_node_count == 3
        labels = {"labels": {"tradewind-job": "other"}}
        await cloud.done(await cloud.call("update_node_pool", name=POOL, labels=labels))
        pool = await cloud.pool()
        assert dict(pool.config.labels) == {"tradewind-job": "other"}
        assert pool.config.machine_type == "g2-standard-8"
        await cloud.done(await cloud.call("delete_node_pool", name=POOL))
        with pytest.raises(exceptions.NotFound):
            await cloud.pool()
        assert len(cloud.region.nodes) == 1


async def test_the_older_way_to_name_things_works_too() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        named = {"project_id": PROJECT, "zone": REGION, "cluster_id": "tw"}
        assert (await cloud.call("get_cluster", **named)).name == "tw"
        assert (await cloud.call("get_node_pool", **named, node_pool_id="system")).name == "system"


async def test_operations_are_listed() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(1)
        listed = await cloud.call("list_operations", parent=EVERYWHERE)
        assert [each.operation_type.name for each in listed.operations] == ["CREATE_CLUSTER", "CREATE_NODE_POOL"]
        with pytest.raises(exceptions.NotFound):
            await cloud.call("get_operation", name=f"{LOCATION}/operations/operation-1")


async def test_the_versions_on_offer_are_told() -> None:
    async with running_cloud() as cloud:
        config = await cloud.call("get_server_config", name=LOCATION)
        assert config.default_cluster_version in config.valid_master_versions


async def test_a_stockout_is_told_inside_an_operation_that_ends() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        await cloud.post("/control/capacity", {"zone": ZONE, "accelerator": "nvidia-l4", "capacity": 1})
        ended = await cloud.done(await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(3)))
        assert ended.error.code == 8
        assert re.search(r" 3,.* 1,.* 2\..*\[GCE_STOCKOUT\]", ended.status_message)
        assert [condition.code.name for condition in ended.nodepool_conditions] == ["GCE_STOCKOUT"]
        pool = await cloud.pool()
        assert pool.status.name == "RUNNING_WITH_ERROR"
        assert [condition.code.name for condition in pool.conditions] == ["GCE_STOCKOUT"]
        await cloud.post("/control/capacity", {"zone": ZONE, "accelerator": "nvidia-l4", "capacity": None})
        await cloud.until_nodes(3)
        assert (await cloud.pool()).status.name == "RUNNING_WITH_ERROR"


async def test_a_quota_that_another_takes_meanwhile_is_told_inside_an_operation_that_ends() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        await cloud.post("/control/stockout", {"zone": ZONE, "on": True})
        created = await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(1))
        await cloud.post("/control/quota", {"region": REGION, "metric": "nvidia-l4", "limit": 0})
        await cloud.post("/control/stockout", {"zone": ZONE, "on": False})
        ended = await cloud.done(created)
        assert "[GCE_QUOTA_EXCEEDED]: Instance 'gke-tw-gpus-" in ended.status_message
        assert [condition.code.name for condition in ended.nodepool_conditions] == ["GCE_QUOTA_EXCEEDED"]


async def test_a_quota_refuses_the_call_and_nothing_is_made() -> None:
    async with running_cloud(quotas=f"{REGION}:nvidia-l4=0") as cloud:
        await cloud.with_cluster()
        with pytest.raises(exceptions.PermissionDenied, match='resource "NVIDIA_L4_GPUS"'):
            await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(1))
        with pytest.raises(exceptions.NotFound):
            await cloud.pool()


async def test_what_is_in_the_way_has_googles_codes() -> None:
    async with running_cloud(operation_s=30.0) as cloud:
        await cloud.call("create_cluster", parent=LOCATION, cluster=a_cluster())
        with pytest.raises(exceptions.AlreadyExists, match=f"Already exists: {CLUSTER}"):
            await cloud.call("create_cluster", parent=LOCATION, cluster=a_cluster())
        with pytest.raises(exceptions.FailedPrecondition, match="incompatible operation") as busy:
            await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool())
        assert busy.value.reason == "CLUSTER_ALREADY_HAS_OPERATION"
        with pytest.raises(exceptions.NotFound, match="'none'"):
            await cloud.call("get_cluster", name=f"{LOCATION}/clusters/none")


async def test_too_many_operations_in_a_cluster_are_refused() -> None:
    async with running_cloud(operations_at_once=2, boot_s=30.0) as cloud:
        operation = await cloud.call(
            "create_cluster", parent=LOCATION, cluster=a_cluster() | {"node_pools": [_empty()]}
        )
        await cloud.done(operation)
        for number in range(2):
            await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(1, f"gpus-{number}"))
        with pytest.raises(exceptions.ResourceExhausted) as refused:
            await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(1, "gpus-2"))
        assert refused.value.message == refusals.too_many_operations(ClusterKey(PROJECT, REGION, "tw"), 2).message


def _empty() -> dict[str, Any]:
    return {"name": "system", "initial_node_count": 0, "config": {"machine_type": "e2-standard-2"}}


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (a_pool(machine_type="z9-huge-1"), "does not exist"),
        (a_pool(accelerators=[{"accelerator_type": "abacus", "accelerator_count": 1}]), "does not exist"),
        (a_pool(accelerators=[{"accelerator_type": "nvidia-l4", "accelerator_count": 4}]), "has 1 of nvidia-l4"),
        (a_pool(machine_type="e2-standard-4"), "cannot be attached"),
        (a_pool(name="Not-A-Name"), "Node pool name"),
        (a_pool() | {"locations": ["europe-west4-a"]}, "must be zones of us-central1"),
    ],
)
async def test_what_makes_no_sense_is_an_invalid_argument(pool: dict[str, Any], why: str) -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        with pytest.raises(exceptions.InvalidArgument, match=why):
            await cloud.call("create_node_pool", parent=CLUSTER, node_pool=pool)


async def test_names_and_places_that_do_not_exist_are_refused() -> None:
    async with running_cloud() as cloud:
        with pytest.raises(exceptions.PermissionDenied, match="locations/mars-north1") as nowhere:
            await cloud.call("create_cluster", parent=f"projects/{PROJECT}/locations/mars-north1", cluster=a_cluster())
        assert nowhere.value.reason == "LOCATION_POLICY_VIOLATED"
        with pytest.raises(exceptions.InvalidArgument, match="Malformed name"):
            await cloud.call("get_cluster", name="clusters/tw")


async def test_what_is_not_simulated_says_so() -> None:
    async with running_cloud() as cloud:
        with pytest.raises(exceptions.MethodNotImplemented):
            await cloud.call("set_legacy_abac", name=CLUSTER, enabled=True)
        with pytest.raises(exceptions.MethodNotImplemented, match="autoscaler"):
            await (await cloud.with_cluster()).call(
                "create_node_pool", parent=CLUSTER, node_pool=a_pool() | {"autoscaling": {"enabled": True}}
            )


async def test_a_call_needs_a_token_that_has_not_expired() -> None:
    async with running_cloud() as cloud:
        for token in ("", "sim.9999999999.0000", "sim.1.0000", "nonsense"):
            with pytest.raises(exceptions.Unauthenticated) as refused:
                await cloud.call("list_clusters", token=token, parent=EVERYWHERE)
            assert refused.value.reason == "ACCESS_TOKEN_TYPE_UNSUPPORTED"


async def test_a_cloud_without_auth_asks_for_none() -> None:
    async with running_cloud(auth=False) as cloud:
        assert not (await cloud.call("list_clusters", token="", parent=EVERYWHERE)).clusters


async def test_an_unknown_project_is_refused_as_google_does() -> None:
    async with running_cloud() as cloud:
        with pytest.raises(exceptions.PermissionDenied, match="other") as refused:
            await cloud.call("list_clusters", parent="projects/other/locations/-")
        assert refused.value.reason == "CONSUMER_INVALID"


async def test_an_api_can_be_disabled_throttled_and_away() -> None:
    async with running_cloud() as cloud:

        async def ask() -> Any:
            return await cloud.call("list_clusters", parent=EVERYWHERE)

        await cloud.post("/control/api", {"api": "gke", "disabled": True})
        with pytest.raises(exceptions.PermissionDenied, match=PROJECT) as disabled:
            await ask()
        assert disabled.value.reason == "SERVICE_DISABLED"
        await cloud.post("/control/api", {"disabled": False, "throttled": True})
        with pytest.raises(exceptions.ResourceExhausted) as throttled:
            await ask()
        assert throttled.value.reason == "RATE_LIMIT_EXCEEDED"
        await cloud.post("/control/api", {"throttled": False, "away": True})
        with pytest.raises(exceptions.ServiceUnavailable):
            await ask()
        await cloud.post("/control/api", {"away": False})
        assert not (await ask()).clusters


async def test_who_asks_too_fast_is_throttled() -> None:
    async with running_cloud(calls_per_minute=3) as cloud:
        for _ in range(3):
            await cloud.call("list_clusters", parent=EVERYWHERE)
        with pytest.raises(exceptions.ResourceExhausted) as throttled:
            await cloud.call("list_clusters", parent=EVERYWHERE)
        assert throttled.value.reason == "RATE_LIMIT_EXCEEDED"


async def test_every_method_that_is_served_is_one_of_googles() -> None:
    from simulator.cloud.gke.service import METHODS

    names = {"".join(part.title() for part in name.split("_")) for name in dir(container_v1.ClusterManagerAsyncClient)}
    assert METHODS.keys() <= names


def a_policy(days: float, scope: str = "NO_MINOR_OR_NODE_UPGRADES", name: str = "mine", version: str = "") -> Any:
    begin = datetime.now(UTC)
    options = {"scope": scope}
    window = {"start_time": begin, "end_time": begin + timedelta(days=days), "maintenance_exclusion_options": options}
    return {"window": {"maintenance_exclusions": {name: window}}, "resource_version": version}


async def test_a_maintenance_policy_is_kept_and_changed_only_by_who_has_read_it() -> None:
    async with running_cloud() as cloud:
        created = {**a_cluster(), "maintenance_policy": a_policy(30)}
        await cloud.done(await cloud.call("create_cluster", parent=LOCATION, cluster=created))
        policy = (await cloud.call("get_cluster", name=CLUSTER)).maintenance_policy
        assert list(policy.window.maintenance_exclusions) == ["mine"] and policy.resource_version
        with pytest.raises(exceptions.FailedPrecondition, match="resource version"):
            await cloud.call("set_maintenance_policy", **_setting(a_policy(60, version="another")))
        changed = a_policy(60, name="other", version=policy.resource_version)
        operation = await cloud.call("set_maintenance_policy", **_setting(changed))
        assert operation.operation_type.name == "UPDATE_CLUSTER"
        await cloud.done(operation)
        now = (await cloud.call("get_cluster", name=CLUSTER)).maintenance_policy
        assert list(now.window.maintenance_exclusions) == ["other"]
        assert now.resource_version != policy.resource_version


@pytest.mark.parametrize(
    ("days", "scope", "said"),
    [(-1, "NO_UPGRADES", "end after"), (200, "NO_UPGRADES", "too long"), (900, "NO_MINOR_UPGRADES", "end of support")],
)
async def test_exclusions_beyond_the_limits_are_refused(days: float, scope: str, said: str) -> None:
    async with running_cloud() as cloud:
        created = {**a_cluster(), "maintenance_policy": a_policy(days, scope)}
        with pytest.raises(exceptions.InvalidArgument, match=said):
            await cloud.call("create_cluster", parent=LOCATION, cluster=created)


async def test_an_exclusion_without_times_is_refused() -> None:
    policy: dict[str, Any] = {"window": {"maintenance_exclusions": {"mine": {}}}}
    async with running_cloud() as cloud:
        with pytest.raises(exceptions.InvalidArgument, match="start time"):
            await cloud.call("create_cluster", parent=LOCATION, cluster={**a_cluster(), "maintenance_policy": policy})


async def test_a_pool_needs_room_to_be_upgraded() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        pool = a_pool(0)
        pool["upgrade_settings"] = {"max_surge": 0, "max_unavailable": 0}
        with pytest.raises(exceptions.InvalidArgument, match="maxSurge"):
            await cloud.call("create_node_pool", parent=CLUSTER, node_pool=pool)


def _setting(policy: Any) -> dict[str, Any]:
    return {"name": CLUSTER, "maintenance_policy": policy}
