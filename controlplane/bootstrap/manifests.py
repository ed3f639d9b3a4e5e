"""The manifests that a cluster needs, as plain dicts in the order of their installation."""

import base64
import hashlib

import msgspec

from controlplane.bootstrap import workloads
from controlplane.bootstrap.names import BUS_SECRET, CONTROLLER, NOTICE, WORKER, cluster_wide, labels
from controlplane.bootstrap.settings import BootstrapSettings, Place, Secrets
from messages.labels import NATS_CREDENTIALS_KEY, NATS_URL_KEY
from runtime.kubernetes.paths import Manifest

_RBAC = "rbac.authorization.k8s.io"
_SPEAKS_TO_KUBERNETES = {CONTROLLER: True, NOTICE: True, WORKER: False}


def manifests(settings: BootstrapSettings, secrets: Secrets, place: Place) -> tuple[Manifest, ...]:
    """All manifests of a cluster. Each needs only those before it; the namespace is first."""
    fleet, namespace = settings.fleet, settings.namespace
    secret_manifests = _secrets(settings, secrets)
    digest = hashlib.sha256(msgspec.json.encode(secret_manifests, order="sorted")).hexdigest()[:16]
    return (
        _namespace(fleet, namespace),
        *_accounts(fleet, namespace),
        *_roles(fleet, namespace),
        *_bindings(fleet, namespace),
        *secret_manifests,
        workloads.controller(settings, place, digest, has_credentials=bool(secrets.nats_credentials)),
        workloads.notice(settings, place, digest),
    )


def _namespace(fleet: str, namespace: str) -> Manifest:
    # The notice watcher uses the node's network. A cluster with a stricter default does not allow that to pods.
    admission = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": {**labels(fleet, "namespace"), **admission}},
    }


def _secrets(settings: BootstrapSettings, secrets: Secrets) -> list[Manifest]:
    bus = {NATS_URL_KEY: secrets.nats_url}
    if secrets.nats_credentials:
        bus[NATS_CREDENTIALS_KEY] = secrets.nats_credentials
    return [_secret(settings, BUS_SECRET, bus)]


def _secret(settings: BootstrapSettings, name: str, values: dict[str, str]) -> Manifest:
    """A Secret with `data` instead of `stringData`, because a second apply of `stringData` is not a no-op."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels(settings.fleet, name)},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def _accounts(fleet: str, namespace: str) -> list[Manifest]:
    return [_account(fleet, namespace, component, speaks) for component, speaks in _SPEAKS_TO_KUBERNETES.items()]


def _roles(fleet: str, namespace: str) -> list[Manifest]:
    return [
        _role(fleet, namespace, CONTROLLER, ["pods"], ["create", "delete", "get", "list", "patch", "watch"]),
        _cluster_role(fleet, namespace, CONTROLLER, ["nodes"], ["get", "list", "watch"]),
        _cluster_role(fleet, namespace, NOTICE, ["nodes"], ["get", "patch"]),
    ]


def _bindings(fleet: str, namespace: str) -> list[Manifest]:
    return [
        _binding(fleet, namespace, CONTROLLER),
        _cluster_binding(fleet, namespace, CONTROLLER),
        _cluster_binding(fleet, namespace, NOTICE),
    ]


def _account(fleet: str, namespace: str, component: str, speaks: bool) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": component, "namespace": namespace, "labels": labels(fleet, component)},
        "automountServiceAccountToken": speaks,
    }


def _role(fleet: str, namespace: str, component: str, resources: list[str], verbs: list[str]) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": component, "namespace": namespace, "labels": labels(fleet, component)},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}],
    }


def _cluster_role(fleet: str, namespace: str, component: str, resources: list[str], verbs: list[str]) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": cluster_wide(namespace, component), "labels": labels(fleet, component)},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}],
    }


def _binding(fleet: str, namespace: str, component: str) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": component, "namespace": namespace, "labels": labels(fleet, component)},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": component},
        "subjects": [_subject(namespace, component)],
    }


def _cluster_binding(fleet: str, namespace: str, component: str) -> Manifest:
    name = cluster_wide(namespace, component)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels(fleet, component)},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [_subject(namespace, component)],
    }


def _subject(namespace: str, component: str) -> Manifest:
    return {"kind": "ServiceAccount", "name": component, "namespace": namespace}
