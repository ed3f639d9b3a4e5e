"""Requests to GKE, checked with its own message classes."""

from dataclasses import replace
from typing import Any

import pytest
from google.cloud import container_v1 as _container_v1
from google.rpc import status_pb2

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.gke import maintenance, requests
from controlplane.clouds.gke.cloud import DEFAULTS
from controlplane.clouds.gke.failures import Code
from controlplane.clouds.gke.settings import ClusterConfig, GkeConfig, NodeConfig
from controlplane.clouds.interface import ClusterStatus, PoolRef, PoolStatus, Taint, system_pool
from messages.ids import ClusterName
from tests.clouds.contract import a_cluster, a_pool

container_v1: Any = _container_v1
NAMES = requests.Names("p")
CLUSTER = ClusterName("a-cluster")
NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


PRIVATE = NodeConfig(private=True)


def configured(cluster: ClusterConfig) -> GkeConfig:
    return GkeConfig(clusters={CLUSTER: cluster})


def cluster_message(plan: Any, config: GkeConfig = DEFAULTS) -> Any:
    return container_v1.CreateClusterRequest(requests.create_cluster(NAMES, plan, config, NOW_S))


def pool_message(plan: Any, nodes: NodeConfig = DEFAULTS.nodes) -> Any:
    return container_v1.CreateNodePoolRequest(requests.create_pool(NAMES, "us-central1", CLUSTER, plan, nodes))


def test_a_cluster_is_vpc_native_on_a_channel_with_workload_identity() -> None:
    asked = cluster_message(
        a_cluster("us-central1"),
        configured(ClusterConfig(pod_range="pods", service_range="services", release_channel="rapid")),
    )
    assert asked.parent == "projects/p/locations/us-central1"
    assert asked.cluster.ip_allocation_policy.use_ip_aliases
    assert asked.cluster.ip_allocation_policy.cluster_secondary_range_name == "pods"
    assert asked.cluster.ip_allocation_policy.services_secondary_range_name == "services"
    assert asked.cluster.release_channel.channel.name == "RAPID"
    assert asked.cluster.workload_identity_config.workload_pool == "p.svc.id.goog"
    assert (asked.cluster.network, asked.cluster.subnetwork) == ("default", "default")
    assert dict(asked.cluster.resource_labels) == {"tradewind-fleet": "a-fleet"}


def test_a_cluster_has_one_small_system_pool_in_one_zone() -> None:
    plan = replace(a_cluster("us-central1"), system=system_pool("us-central1-b", "e2-standard-4", 2))
    (pool,) = cluster_message(plan, GkeConfig(nodes=NodeConfig(tags=("a-tag",)))).cluster.node_pools
    assert (pool.name, pool.initial_node_count, list(pool.locations)) == ("system", 2, ["us-central1-b"])
    assert (pool.config.machine_type, pool.config.disk_size_gb, list(pool.config.tags)) == (
        "e2-standard-4",
        50,
        ["a-tag"],
    )
    assert not pool.config.spot


def test_a_pool_is_of_one_zone_with_all_that_was_planned() -> None:
    plan = replace(
        a_pool("us-central1-c"),
        size=4,
        shutdown_grace_s=120,
        taints=(Taint("a", "b", "NoExecute"), Taint("c", "d", "PreferNoSchedule")),
    )
    account = "nodes@p.iam.gserviceaccount.com"
    asked = pool_message(plan, NodeConfig(disk_gb=50, driver="latest", tags=("a-tag",), service_account=account))
    pool, config = asked.node_pool, asked.node_pool.config
    assert asked.parent == "projects/p/locations/us-central1/clusters/a-cluster"
    assert (pool.name, pool.initial_node_count, list(pool.locations)) == ("a-pool", 4, ["us-central1-c"])
    (gpu,) = config.accelerators
    assert (gpu.accelerator_type, gpu.accelerator_count) == ("nvidia-l4", 1)
    assert gpu.gpu_driver_installation_config.gpu_driver_version.name == "LATEST"
    assert [(taint.key, taint.effect.name) for taint in config.taints] == [
        ("a", "NO_EXECUTE"),
        ("c", "PREFER_NO_SCHEDULE"),
    ]
    assert config.spot
    assert config.workload_metadata_config.mode.name == "GKE_METADATA"
    assert config.kubelet_config.shutdown_grace_period_seconds == 120
    assert config.kubelet_config.shutdown_grace_period_critical_pods_seconds == 15
    assert config.service_account == "nodes@p.iam.gserviceaccount.com"
    assert (config.disk_size_gb, config.disk_type, list(config.tags)) == (50, "pd-balanced", ["a-tag"])
    assert config.labels["tradewind-job"] == config.resource_labels["tradewind-job"] == "a-job"


def test_an_on_demand_pool_without_accelerators_asks_for_neither() -> None:
    bare = MachineKind("z", "e2-standard-4", "", 0, spot=False)
    plan = replace(a_pool("z"), kind=bare, shutdown_grace_s=120)
    config = pool_message(plan, NodeConfig(workload_identity=False)).node_pool.config
    assert not config.spot
    assert not config.accelerators
    assert "kubelet_config" not in config
    assert "workload_metadata_config" not in config


def test_the_usual_grace_is_not_asked_for_as_older_versions_do_not_know_it() -> None:
    assert "kubelet_config" not in pool_message(a_pool("z")).node_pool.config


@pytest.mark.parametrize("driver", ["default", "latest", "disabled"])
def test_every_driver_installation_is_known_to_gke(driver: str) -> None:
    (gpu,) = pool_message(a_pool("z"), NodeConfig(driver=driver)).node_pool.config.accelerators
    assert gpu.gpu_driver_installation_config.gpu_driver_version


def test_labels_that_compute_would_refuse_stay_with_kubernetes() -> None:
    plan = replace(a_pool("z"), labels={"tradewind-job": "a-job", "example.com/team": "A.B", "since": "2026-01-01T00"})
    config = pool_message(plan).node_pool.config
    assert dict(config.resource_labels) == {"tradewind-job": "a-job"}
    assert len(config.labels) == 3


def test_a_resize_names_the_pool() -> None:
    request = requests.resize_pool(NAMES, "us-central1", PoolRef(CLUSTER, "a-pool"), 3)
    asked = container_v1.SetNodePoolSizeRequest(request)
    assert (asked.name, asked.node_count) == (
        "projects/p/locations/us-central1/clusters/a-cluster/nodePools/a-pool",
        3,
    )


@pytest.mark.parametrize(
    ("status", "endpoint", "known", "ready"),
    [
        ("PROVISIONING", "", ClusterStatus.PROVISIONING, False),
        ("RUNNING", "1.2.3.4", ClusterStatus.RUNNING, True),
        ("RUNNING", "", ClusterStatus.RUNNING, False),
        ("RECONCILING", "1.2.3.4", ClusterStatus.RUNNING, True),
        ("DEGRADED", "1.2.3.4", ClusterStatus.RUNNING, True),
        ("STOPPING", "1.2.3.4", ClusterStatus.STOPPING, False),
        ("ERROR", "1.2.3.4", ClusterStatus.ERROR, False),
        ("STATUS_UNSPECIFIED", "", ClusterStatus.PROVISIONING, False),
    ],
)
def test_a_half_made_cluster_is_told_from_a_ready_one(
    status: str, endpoint: str, known: ClusterStatus, ready: bool
) -> None:
    message = container_v1.Cluster({"name": "c", "location": "l", "status": status, "endpoint": endpoint})
    info = requests.cluster_seen(message, NOW_S).info
    assert (info.status, info.ready) == (known, ready)


@pytest.mark.parametrize("status", ["RUNNING_WITH_ERROR", "ERROR"])
def test_the_error_status_of_a_pool_that_has_a_group_says_nothing_of_its_nodes(status: str) -> None:
    text = "no machines"
    message = container_v1.NodePool(
        {
            "name": "a-pool",
            "status": status,
            "conditions": [{"code": "GCE_STOCKOUT", "message": text}],
            "locations": ["us-central1-a"],
            "instance_group_urls": [
                "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/instanceGroupManagers/g-grp",
                "https://elsewhere/nonsense",
            ],
        }
    )
    seen = requests.pool_seen(CLUSTER, message)
    assert (seen.info.status, seen.info.detail) == (PoolStatus.RUNNING, f"GCE_STOCKOUT: {text}")
    assert seen.groups == (requests.InstanceGroup("p", "us-central1-a", "g-grp"),)


def test_a_pool_in_error_without_a_group_gets_no_nodes() -> None:
    message = container_v1.NodePool({"name": "a-pool", "status": "ERROR", "locations": ["us-central1-a"]})
    assert requests.pool_seen(CLUSTER, message).info.status is PoolStatus.ERROR


def test_an_operation_is_over_when_it_is_done_and_failed_when_it_says_so() -> None:
    running = container_v1.Operation({"name": "o", "zone": "us-central1-a", "status": "RUNNING"})
    failed = container_v1.Operation({"name": "o", "location": "l", "status": "DONE"})
    failed.error = status_pb2.Status(code=8, message="no")
    old_style = container_v1.Operation({"name": "o", "location": "l", "status": "DONE", "status_message": "no"})
    aborting = container_v1.Operation({"name": "o", "location": "l", "status": "ABORTING"})
    assert requests.operation_report(running).ended is requests.operation_report(aborting).ended is False
    assert requests.operation_report(running).location == "us-central1-a"
    assert requests.operation_report(failed).error is Code.RESOURCE_EXHAUSTED
    assert requests.operation_report(old_style).error is Code.UNKNOWN
    assert requests.operation_report(old_style).message == "no"


@pytest.mark.filterwarnings("ignore:Unrecognized")
def test_values_that_the_installed_library_does_not_know_are_read_as_numbers() -> None:
    text = "of next year"
    conditions = [{"code": 4711, "message": text}]
    exclusion = an_exclusion(NOW_S, NOW_S + DAY_S, "NO_UPGRADES") | {"maintenance_exclusion_options": {"scope": 77}}
    message = container_v1.Cluster(
        {
            "name": "c",
            "status": 99,
            "conditions": conditions,
            "node_pools": [{"name": "p", "status": 99, "conditions": conditions}],
            "maintenance_policy": {"window": {"maintenance_exclusions": {"new": exclusion}}},
        }
    )
    seen = requests.cluster_seen(message, NOW_S)
    assert (seen.info.status, seen.info.detail) == (ClusterStatus.PROVISIONING, f"4711: {text}")
    assert (seen.info.protected_until, seen.pools[0].info.status) == (None, PoolStatus.PROVISIONING)
    operation = container_v1.Operation({"name": "o", "status": 99, "nodepool_conditions": conditions})
    assert requests.operation_report(operation).conditions == (("4711", text),)


def test_an_endpoint_is_https_unless_it_says_otherwise() -> None:
    google = container_v1.Cluster({"endpoint": "1.2.3.4", "master_auth": {"cluster_ca_certificate": "UEVN"}})
    stand_in = container_v1.Cluster({"endpoint": "http://127.0.0.1:8080/k8s/c"})
    access, plain = requests.kubernetes_access(google), requests.kubernetes_access(stand_in)
    assert access is not None
    assert plain is not None
    assert (access.endpoint, access.ca_certificate) == ("https://1.2.3.4", "PEM")
    assert (plain.endpoint, plain.ca_certificate) == ("http://127.0.0.1:8080/k8s/c", "")
    assert requests.kubernetes_access(container_v1.Cluster()) is None


def test_clusters_elsewhere_are_none_of_ours_unless_they_bear_our_label() -> None:
    answer = container_v1.ListClustersResponse(
        {
            "clusters": [
                {"name": "a", "location": "us-central1"},
                {"name": "b", "location": "mars-1"},
                {"name": "c", "location": "mars-1", "resource_labels": {"tradewind-fleet": "ours"}},
            ],
            "missing_zones": ["us-central1-f", "mars-1-a"],
        }
    )
    assert [seen.info.name for seen in requests.clusters_seen(answer, ["us-central1"], NOW_S)] == ["a", "c"]
    assert requests.missing_locations(answer, ["us-central1"]) == ("us-central1-f",)
    assert len(requests.missing_locations(answer, [])) == 2


def test_private_nodes_are_asked_of_the_cluster_and_of_each_pool() -> None:
    cluster = cluster_message(a_cluster("us-central1"), GkeConfig(nodes=PRIVATE)).cluster
    assert cluster.network_config.default_enable_private_nodes
    assert pool_message(a_pool("us-central1-a"), PRIVATE).node_pool.network_config.enable_private_nodes
    assert "enable_private_nodes" not in pool_message(a_pool("us-central1-a")).node_pool.network_config


def test_authorized_networks_are_the_only_ones_that_reach_the_control_plane() -> None:
    networks = configured(ClusterConfig(authorized_networks=("203.0.113.7/32", "198.51.100.0/24")))
    asked = cluster_message(
        a_cluster("us-central1"), networks
    ).cluster.control_plane_endpoints_config.ip_endpoints_config
    allowed = asked.authorized_networks_config
    assert asked.enable_public_endpoint and allowed.enabled and not allowed.gcp_public_cidrs_access_enabled
    assert [block.cidr_block for block in allowed.cidr_blocks] == ["203.0.113.7/32", "198.51.100.0/24"]
    open_to_all = cluster_message(a_cluster("us-central1")).cluster
    assert "control_plane_endpoints_config" not in open_to_all


def test_image_streaming_is_asked_of_pools_that_want_it() -> None:
    assert pool_message(a_pool("us-central1-a"), NodeConfig(image_streaming=True)).node_pool.config.gcfs_config.enabled
    assert "gcfs_config" not in pool_message(a_pool("us-central1-a")).node_pool.config


def test_a_cluster_is_made_with_an_exclusion_of_node_upgrades() -> None:
    policy = cluster_message(a_cluster("us-central1")).cluster.maintenance_policy
    (window,) = policy.window.maintenance_exclusions.values()
    assert window.maintenance_exclusion_options.scope.name == "NO_MINOR_OR_NODE_UPGRADES"
    assert (window.start_time.timestamp(), window.end_time.timestamp()) == (NOW_S, NOW_S + 180 * DAY_S)


def test_a_pool_is_upgraded_without_machines_beyond_its_own() -> None:
    settings = pool_message(a_pool("us-central1-c")).node_pool.upgrade_settings
    assert (settings.max_surge, settings.max_unavailable) == (0, 1)


def an_exclusion(begin_s: float, end_s: float, scope: str) -> Any:
    return maintenance.exclusion(begin_s, end_s) | {"maintenance_exclusion_options": {"scope": scope}}


@pytest.mark.parametrize(
    ("begin_s", "end_s", "scope", "until"),
    [
        (-DAY_S, DAY_S, "NO_MINOR_OR_NODE_UPGRADES", NOW_S + DAY_S),
        (-DAY_S, DAY_S, "NO_UPGRADES", NOW_S + DAY_S),
        (-DAY_S, DAY_S, "NO_MINOR_UPGRADES", None),
        (-2 * DAY_S, -DAY_S, "NO_UPGRADES", None),
        (DAY_S, 2 * DAY_S, "NO_UPGRADES", None),
    ],
)
def test_only_exclusions_of_this_moment_and_of_nodes_protect(
    begin_s: float, end_s: float, scope: str, until: float | None
) -> None:
    window = {"maintenance_exclusions": {"mine": an_exclusion(NOW_S + begin_s, NOW_S + end_s, scope)}}
    message = container_v1.Cluster({"name": "c", "maintenance_policy": {"window": window}})
    assert requests.cluster_seen(message, NOW_S).info.protected_until == until


def test_an_exclusion_without_an_end_does_not_count() -> None:
    endless = an_exclusion(NOW_S - DAY_S, NOW_S, "NO_UPGRADES")
    del endless["end_time"]
    message = container_v1.Cluster(
        {"name": "c", "maintenance_policy": {"window": {"maintenance_exclusions": {"theirs": endless}}}}
    )
    assert requests.cluster_seen(message, NOW_S).info.protected_until is None


def test_a_renewed_exclusion_leaves_windows_and_exclusions_of_other_people_as_they_are() -> None:
    mine = {
        "daily_maintenance_window": {"start_time": "03:00"},
        "maintenance_exclusions": {"holidays": an_exclusion(NOW_S, NOW_S + DAY_S, "NO_UPGRADES")},
    }
    policy = container_v1.MaintenancePolicy({"window": mine, "resource_version": "abc"})
    changed = maintenance.renewed(policy, NOW_S, NOW_S + 30 * DAY_S)
    assert changed.resource_version == "abc"
    assert changed.window.daily_maintenance_window.start_time == "03:00"
    ends = {name: each.end_time.timestamp() for name, each in changed.window.maintenance_exclusions.items()}
    assert ends == {"holidays": NOW_S + DAY_S, "tradewind": NOW_S + 30 * DAY_S}
    again = maintenance.renewed(changed, NOW_S + DAY_S, NOW_S + 60 * DAY_S)
    assert len(again.window.maintenance_exclusions) == 2
