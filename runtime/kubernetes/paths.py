"""Paths of objects in the Kubernetes API."""

from typing import Any
from urllib.parse import quote

Manifest = dict[str, Any]

NODES_PATH = "/api/v1/nodes"

_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "Secret": "secrets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Deployment": "deployments",
    "DaemonSet": "daemonsets",
}


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def path_of(manifest: Manifest) -> str:
    version, fields = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = f"/namespaces/{fields['namespace']}" if fields.get("namespace") else ""
    return f"{root}{namespace}/{_PLURALS[manifest['kind']]}/{quote(fields['name'], safe='')}"
