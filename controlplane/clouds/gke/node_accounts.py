"""The roles that the service account of nodes needs, and the commands that grant them.

In newer organisations the default compute account has no roles: nodes start and cost money, but cannot pull images from
Artifact Registry.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from controlplane.clouds.gke.enums import name_of

if TYPE_CHECKING:
    from google.cloud import container_v1

MISSING_PERMISSIONS = "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS"
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
PULL_ROLE = "roles/artifactregistry.reader"
DEFAULT_ACCOUNT = "default"
"""GKE's name of the project's default compute account in a node's configuration."""
_REGISTRY = re.compile(r"^(?:[a-z0-9-]+-docker\.pkg\.dev|(?:[a-z]+\.)?gcr\.io)/([a-z0-9.:-]+)/")
_PROJECT = re.compile(r"/projects/([^/]+)/")


def pull_hint(image: str, project: str, account: str | None) -> str:
    """How to let nodes pull an image from Google's registries; empty for other registries."""
    found = _REGISTRY.match(image)
    return f"run `{_grant(found[1], project, account, PULL_ROLE)}`" if found is not None else ""


def advice_on(cluster: "container_v1.Cluster") -> str:
    """The roles to grant if GKE reports that nodes of the cluster lack permissions; otherwise empty."""
    if not any(name_of(condition.code) == MISSING_PERMISSIONS for condition in cluster.conditions):
        return ""
    found = _PROJECT.search(cluster.self_link)
    project = found[1] if found is not None else "PROJECT_ID"
    accounts = dict.fromkeys(pool.config.service_account for pool in cluster.node_pools)
    grants = " and ".join(f"`{_grant(project, project, account, NODE_ROLE)}`" for account in _known(accounts))
    return f"The service account of its nodes lacks permissions; try: run {grants}"


def _known(accounts: Iterable[str]) -> list[str]:
    return list(accounts) or [DEFAULT_ACCOUNT]


def _grant(where: str, project: str, account: str | None, role: str) -> str:
    """The command that grants a role in the project `where`; `project` is the project of the nodes."""
    if account in (None, "", DEFAULT_ACCOUNT):
        number = f"$(gcloud projects describe {project} --format='value(projectNumber)')"
        account = f"{number}-compute@developer.gserviceaccount.com"
    return f'gcloud projects add-iam-policy-binding {where} --member="serviceAccount:{account}" --role={role}'
