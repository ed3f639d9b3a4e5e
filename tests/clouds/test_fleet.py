"""The fleet file: all its mistakes at once, and its translation for each part."""

import copy
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from controlplane.allocator.offers import pool_plan
from controlplane.clouds.gke.fleet_file import NOT_YET, GkeFleet, gke_config, gke_settings
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.clouds.interface import Taint
from controlplane.fleet.files import read_fleet
from controlplane.fleet.interpretation import bootstrap_settings, cluster_plans, complete, offers, places
from messages.ids import JobName
from messages.labels import FLEET_LABEL, JOB_LABEL, LEASE_LABEL, POOL_LABEL
from runtime.errors import UserError

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "name": "a-fleet",
    "cloud": {"kind": "gke", "project": "a-project"},
    "clusters": [
        {"name": "us", "location": "us-central1-a", "zones": ["us-central1-a", "us-central1-b"]},
        {"name": "eu", "location": "europe-west4", "zones": ["europe-west4-b"]},
    ],
    "offers": [
        {
            "cluster": "us",
            "zone": "us-central1-b",
            "machine_type": "g2-standard-8",
            "accelerator": "nvidia-l4",
            "max_nodes": 3,
        },
        {"cluster": "eu", "zone": "europe-west4-b", "machine_type": "n2-standard-4", "max_nodes": 2, "spot": False},
    ],
    "pods": {"image": "tradewind:1"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, changes: dict[str, Any]) -> GkeFleet:
    """`changes` by paths such as `clusters.0.name`."""
    data = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place: Any = data
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        place[int(last) if isinstance(place, list) else last] = value
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(data))
    fleet = read_fleet(file)
    assert isinstance(fleet, GkeFleet)
    return fleet


def test_a_small_file_is_enough(folder: Path) -> None:
    fleet = read(folder, {})
    assert fleet.network == fleet.subnetwork == "default"
    assert [place.region for place in places(fleet)] == ["us-central1", "europe-west4"]


@pytest.mark.parametrize("name", ["fleet-gke.yaml", "fleet-simulator.yaml"])
def test_the_examples_can_be_used(name: str) -> None:
    fleet = read_fleet(ROOT / "examples" / name)
    assert len(cluster_plans(fleet)) == len(fleet.clusters) > 1
    assert offers(fleet)[0].spot
    assert bootstrap_settings(fleet).image == fleet.pods.image


def test_every_key_is_documented() -> None:
    text = (ROOT / "docs" / "fleet.md").read_text()
    rows = " ".join(re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE))
    documented = set(re.findall(r"`(?:\w+\.)*(\w+)`", rows))
    keys = set(_keys(GkeFleet)) - {"endpoints", "disk"}
    assert {"name", "pod_range", "shutdown_grace_s", "size_gb"} <= keys
    assert keys - documented <= {"key", "value", "effect"}
    for variable in (f"TRADEWIND_GKE_{field}".upper() for field in GkeSettings.__struct_fields__):
        assert variable in text or variable.endswith("_LOCATIONS")


@pytest.mark.parametrize(
    ("changes", "place", "values"),
    [
        ({"clusters.1.name": "us"}, "clusters[1].name", ["clusters[0]"]),
        ({"clusters.0.region": "us-east1"}, "clusters[0].region", ["us-east1", "us-central1-a"]),
        ({"clusters.0.zones": ["us-east1-b", "us-central1-b"]}, "clusters[0].zones[0]", ["us-east1-b", "us-central1"]),
        ({"clusters.0.zones": ["us-central1-b"] * 2}, "clusters[0].zones[1]", ["clusters[0].zones[0]"]),
        ({"clusters.0.zones": []}, "clusters[0].zones", ["0", "1"]),
        ({"clusters.0.location": "moon"}, "clusters[0].location", ["'moon'"]),
        ({"clusters.0.name": "1st"}, "clusters[0].name", ["'1st'"]),
        ({"clusters.0.name": "x" * 41}, "clusters[0].name", ["x" * 41, "40"]),
        ({"offers.0.cluster": "asia"}, "offers[0].cluster", ["'asia'", "us, eu"]),
        ({"offers.0.zone": "us-central1-f"}, "offers[0].zone", ["us-central1-f", "us-central1-a"]),
        ({"offers.1.per_node": 2}, "offers[1].per_node", ["2", "accelerator"]),
        ({"offers.1": SMALL["offers"][0] | {"per_node": 1, "max_nodes": 9}}, "offers[1]", ["offers[0]"]),
        ({"offers.0.max_nodes": 0}, "offers[0].max_nodes", ["0", "1"]),
        ({"offers": []}, "offers", ["0", "1"]),
        ({"labels.tradewind-job": "x"}, "labels.tradewind-job", ["'tradewind-'"]),
        ({"labels.team": "A B"}, "labels.team", ["'A B'"]),
        ({"cloud.kind": "eks"}, "cloud.kind", ["gke", "'eks'"]),
        ({"cloud.project": "My Project"}, "cloud.project", ["'My Project'"]),
        ({"cloud.endpoints.gke": "http://x"}, "cloud.endpoints.gke", ["'http://x'", "host:port"]),
        ({"cloud.endpoints.insecure": True}, "cloud.endpoints.insecure", ["Google"]),
        ({"cloud.endpoints.gke": "127.0.0.1:99999"}, "cloud.endpoints.gke", [" 127.0.0.1:99999,"]),
        ({"cloud.endpoints.gke": "127.0.0.1:0"}, "cloud.endpoints.gke", [" 127.0.0.1:0,"]),
        ({"cloud.endpoints.compute": "http://a:99999/v1"}, "cloud.endpoints.compute", ["http://a:99999/v1"]),
        ({"cloud.endpoints.compute": "http://[::1"}, "cloud.endpoints.compute", ["http://[::1"]),
        ({"cloud.credentials": "~nobody-here/key.json"}, "cloud.credentials", ["~nobody-here/key.json"]),
        ({"cloud.credentials": "key\0.json"}, "cloud.credentials", ["'key\\x00.json'"]),
        ({"cloud.credentials": ""}, "cloud.credentials", ["''"]),
        ({"nodes.shutdown_grace_s": 0}, "nodes.shutdown_grace_s", ["0", "30", "120", "preempted"]),
        ({"nodes.taints": [{"key": "a,b"}]}, "nodes.taints[0].key", ["'a,b'"]),
        ({"nodes.taints": [{"key": "a", "value": "-z"}]}, "nodes.taints[0].value", ["'-z'", "63"]),
        ({"authorized_networks": ["10.0.0.1/8"]}, "authorized_networks[0]", ["'10.0.0.1/8'", "10.0.0.0/8?"]),
        ({"authorized_networks": ["203.0.113.7/33"]}, "authorized_networks[0]", ["'203.0.113.7/33'", " 32"]),
        ({"authorized_networks": ["1.2.3/8"]}, "authorized_networks[0]", ["'1.2.3/8'", " 1.2.3 "]),
        ({"nodes.shutdown_grace_s": 60}, "nodes.shutdown_grace_s", ["60", "30", "120"]),
        ({"pods": {}}, "pods.image", ["registry/tradewind:1.0"]),
        ({"netwerk": "x"}, "netwerk", ["'network'?"]),
    ],
)
def test_a_mistake_is_told_with_its_place(folder: Path, changes: dict[str, Any], place: str, values: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read(folder, changes)
    assert text_at(place, caught.value, *values), caught.value.problems
    assert "docs/fleet.md" in caught.value.hint


def text_at(place: str, error: UserError, *values: str) -> str:
    """The problem at this place of the file that names these values; empty if there is none."""
    texts = [text for found, _, text in (problem.partition(": ") for problem in error.problems) if found == place]
    return next((text for text in texts if all(value in text for value in values)), "")


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(folder, {"offers.0.cluster": "asia", "clusters.1.name": "us", "labels.tradewind-x": "y"})
    assert len(caught.value.problems) == 4  # the second offer's cluster, too, is gone with its name


def test_clusters_of_a_region_need_pod_ranges_of_their_own(folder: Path) -> None:
    second = SMALL["clusters"][0] | {"name": "us2", "pod_range": "pods"}
    with pytest.raises(UserError) as caught:
        read(folder, {"clusters.0.pod_range": "pods", "clusters.1": second, "offers.1.cluster": "us2"})
    assert text_at("clusters[1].pod_range", caught.value, "pods", "us")


def test_a_file_that_is_missing_is_one_problem(folder: Path) -> None:
    path = folder / "nothing.yaml"
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        read_fleet(path)
    assert not caught.value.problems


def test_a_cluster_plan_has_what_the_file_says(folder: Path) -> None:
    changes = {
        "network": "a-vpc",
        "clusters.0.subnetwork": "a-subnet",
        "clusters.0.pod_range": "pods",
        "system_pool": {"machine_type": "e2-small", "size": 2, "disk": {"size_gb": 20}},
        "nodes": {"tags": ["a-tag"], "service_account": "a@b.c"},
        "labels": {"team": "research"},
    }
    fleet = read(folder, changes)
    (us, eu), config = cluster_plans(fleet), gke_config(fleet)
    there = config.cluster(us.name)
    assert (there.network, there.subnetwork, there.pod_range) == ("a-vpc", "a-subnet", "pods")
    assert (us.system.kind.machine_type, us.system.size, config.disk_of(us.system.name)[1]) == ("e2-small", 2, 20)
    assert (us.system.kind.zone, eu.system.kind.zone) == ("us-central1-a", "europe-west4-b")
    assert (config.cluster(eu.name).subnetwork, eu.location) == ("default", "europe-west4")
    assert us.labels == {"team": "research", FLEET_LABEL: "a-fleet"}
    assert (config.nodes.tags, config.nodes.service_account) == (("a-tag",), "a@b.c")


def test_offers_keep_their_order_and_count_accelerators(folder: Path) -> None:
    first, second = offers(read(folder, {}))
    assert (first.cluster, first.accelerators_per_node, first.spot, first.max_nodes) == ("us", 1, True, 3)
    assert (second.cluster, second.accelerators_per_node, second.spot, second.accelerator) == ("eu", 0, False, None)


def test_the_allocators_plan_is_completed_by_the_fleet(folder: Path) -> None:
    changes = {
        "nodes": {
            "disk": {"size_gb": 300, "type": "pd-ssd"},
            "taints": [{"key": "a"}],
            "driver": "latest",
            "shutdown_grace_s": 120,
        },
        "labels": {"team": "research"},
    }
    fleet = read(folder, changes)
    plan = complete(fleet, pool_plan(JobName("a-job"), offers(fleet)[0], 2), {LEASE_LABEL: "7"})
    nodes = gke_config(fleet).nodes
    assert (plan.size, plan.kind.accelerator, nodes.disk_gb, nodes.disk_type) == (2, "L4", 300, "pd-ssd")
    assert plan.taints == (Taint("a", "", "NoSchedule"),)
    assert (nodes.driver, plan.shutdown_grace_s, nodes.workload_identity) == ("latest", 120, True)
    assert plan.labels == {
        "team": "research",
        FLEET_LABEL: "a-fleet",
        JOB_LABEL: "a-job",
        POOL_LABEL: plan.name,
        LEASE_LABEL: "7",
    }


def test_taints_and_the_grace_of_nodes_reach_the_pods_in_the_clusters(folder: Path) -> None:
    taints = [{"key": "a"}, {"key": "team", "value": "ml", "effect": "NoExecute"}]
    settings = bootstrap_settings(read(folder, {"nodes": {"taints": taints, "shutdown_grace_s": 120}}))
    assert settings.node_taints == ("a=:NoSchedule", "team=ml:NoExecute")
    assert settings.shutdown_grace_s == 120


def test_credentials_are_found_from_the_folder_of_the_file(folder: Path) -> None:
    fleet = read(folder, {"cloud.credentials": "keys/key.json"})
    assert gke_settings(fleet, {}).credentials_file == str(folder / "keys" / "key.json")
    assert read(folder, {"cloud.credentials": "/etc/key.json"}).cloud.credentials == "/etc/key.json"


def test_without_endpoints_it_is_google_itself(folder: Path) -> None:
    settings = gke_settings(read(folder, {}), {})
    assert settings == GkeSettings(project="a-project", locations=("us-central1-a", "europe-west4"))


def test_the_environment_goes_before_the_file(folder: Path) -> None:
    fleet = read(folder, {"cloud.endpoints.gke": "127.0.0.1:1"})
    environ = {"TRADEWIND_GKE_ENDPOINT": "cloud:8900", "TRADEWIND_GKE_INSECURE": "true", "TRADEWIND_GKE_CALL_S": "3"}
    settings = gke_settings(fleet, environ)
    assert (settings.endpoint, settings.insecure, settings.call_s) == ("cloud:8900", True, 3.0)
    with pytest.raises(UserError) as caught:
        gke_settings(fleet, {"TRADEWIND_GKE_CALL_S": "soon"})
    assert "TRADEWIND_GKE_CALL_S" in caught.value.problems[0]


def _keys(struct: Any) -> list[str]:
    found = []
    for field in msgspec.structs.fields(struct):
        found.append(field.encode_name)
        for inner in [field.type, *getattr(field.type, "__args__", ())]:
            for each in [inner, *getattr(inner, "__args__", ())]:
                if isinstance(each, type) and issubclass(each, msgspec.Struct):
                    found.extend(_keys(each))
    return found


def test_private_nodes_networks_and_image_streaming_reach_the_plans(folder: Path) -> None:
    changes = {
        "nodes.private": True,
        "nodes.image_streaming": True,
        "authorized_networks": ["203.0.113.7/32"],
    }
    fleet = read(folder, changes)
    config = gke_config(fleet)
    assert {each.authorized_networks for each in config.clusters.values()} == {("203.0.113.7/32",)}
    assert config.nodes.private and config.nodes.image_streaming


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compact_placement", True),
        ("flex_start", True),
        ("queued_provisioning", {"enabled": True}),
        ("reservation", "my-reservation"),
    ],
)
def test_what_is_not_supported_yet_is_refused_at_its_place_with_what_to_use_instead(
    folder: Path, key: str, value: Any
) -> None:
    with pytest.raises(UserError) as caught:
        read(folder, {f"offers.1.{key}": value})
    assert len(caught.value.problems) == 1
    assert text_at(f"offers[1].{key}", caught.value, NOT_YET[key])


@pytest.mark.parametrize("key", NOT_YET)
def test_what_is_not_supported_yet_may_be_switched_off(folder: Path, key: str) -> None:
    assert len(read(folder, {f"offers.1.{key}": False}).offers) == len(SMALL["offers"])


def test_a_network_that_is_no_cidr_block_is_refused(folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(folder, {"authorized_networks": ["203.0.113.7/32", "203.0.113.7/24", "300.0.0.0/8"]})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "authorized_networks[1]",
        "authorized_networks[2]",
    ]
