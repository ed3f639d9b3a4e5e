"""The roles to grant to the service account of nodes."""

import pytest
from google.cloud import container_v1

from controlplane.clouds.gke import requests
from controlplane.clouds.gke.node_accounts import NODE_ROLE, pull_hint

ACCOUNT = "nodes@acme.iam.gserviceaccount.com"


@pytest.mark.parametrize(
    ("image", "project"),
    [
        ("us-central1-docker.pkg.dev/shared-images/repo/trainer:1", "shared-images"),
        ("gcr.io/acme/trainer:1", "acme"),
        ("eu.gcr.io/acme/trainer@sha256:0", "acme"),
    ],
)
def test_the_role_is_granted_in_the_project_of_the_image(image: str, project: str) -> None:
    words = pull_hint(image, "acme", ACCOUNT).partition("`")[2].split()
    assert words[:3] == ["gcloud", "projects", "add-iam-policy-binding"]
    assert words[3:] == [project, f'--member="serviceAccount:{ACCOUNT}"', "--role=roles/artifactregistry.reader`"]


def test_the_default_account_is_named_by_the_number_of_the_nodes_project() -> None:
    hint = pull_hint("us-docker.pkg.dev/images/repo/trainer:1", "acme", None)
    assert "binding images " in hint
    assert "describe acme" in hint and "'value(projectNumber)')-compute@" in hint


@pytest.mark.parametrize("image", ["python:3.11", "registry.example.com/acme/trainer:1", "docker.pkg.dev.evil.com/a/b"])
def test_other_registries_have_no_hint(image: str) -> None:
    assert pull_hint(image, "acme", ACCOUNT) == ""


def a_cluster(*codes: str) -> container_v1.Cluster:
    conditions = [{"code": code} for code in codes]
    pools = [{"name": "system", "config": {"service_account": ACCOUNT}}]
    link = "https://container.googleapis.com/v1/projects/acme/locations/us-central1/clusters/tw"
    return container_v1.Cluster(name="tw", self_link=link, conditions=conditions, node_pools=pools)


def test_a_cluster_whose_nodes_lack_permissions_comes_with_the_command_that_grants_them() -> None:
    advice = requests.cluster_seen(a_cluster("NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS"), 0.0).info.advice
    command = advice.split("`")[1].split()
    assert command[3:] == ["acme", f'--member="serviceAccount:{ACCOUNT}"', f"--role={NODE_ROLE}"]


def test_other_conditions_of_a_cluster_give_no_advice() -> None:
    assert requests.cluster_seen(a_cluster("CA_EXPIRING"), 0.0).info.advice == ""
