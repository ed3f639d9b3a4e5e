"""Who may do what in a cluster: the controller with pods and nodes, the notice with nodes, workers nothing at all."""

from controlplane.bootstrap.names import CONTROLLER, NOTICE, WORKER, Manifest, cluster_wide, labels

_RBAC = "rbac.authorization.k8s.io"


def accounts(fleet: str, namespace: str) -> list[Manifest]:
    return [_account(fleet, namespace, component, speaks) for component, speaks in _SPEAKS_TO_KUBERNETES.items()]


def roles(fleet: str, namespace: str) -> list[Manifest]:
    return [
        _role(fleet, namespace, CONTROLLER, ["pods"], ["create", "delete", "get", "list", "patch", "watch"]),
        _cluster_role(fleet, namespace, CONTROLLER, ["nodes"], ["get", "list", "watch"]),
        _cluster_role(fleet, namespace, NOTICE, ["nodes"], ["get", "patch"]),
    ]


def bindings(fleet: str, namespace: str) -> list[Manifest]:
    return [
        _binding(fleet, namespace, CONTROLLER),
        _cluster_binding(fleet, namespace, CONTROLLER),
        _cluster_binding(fleet, namespace, NOTICE),
    ]


_SPEAKS_TO_KUBERNETES = {CONTROLLER: True, NOTICE: True, WORKER: False}


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
