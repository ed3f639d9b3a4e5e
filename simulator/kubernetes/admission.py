"""Completes an object before it is stored, and refuses an invalid one."""

from simulator.kubernetes import pods, problems
from simulator.kubernetes.defaults import complete_change, complete_new, complete_status
from simulator.kubernetes.objects import Key, Obj, is_deleting, labels_of, meta, spec_of
from simulator.kubernetes.problems import Cause
from simulator.kubernetes.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from simulator.kubernetes.store import Store
from simulator.kubernetes.validation import content_causes, metadata_causes, status_causes

TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def admit_new(resource: Resource, obj: Obj, store: Store, *, toleration_s: int) -> None:
    """Completes a new object; raises `ApiProblem` if it is invalid."""
    _check_namespace(resource, obj, store)
    complete_new(resource, obj, toleration_s=toleration_s, serial=store.version)
    if resource.id == PODS.id:
        _check_service_account(obj, store)
        where = topology_labels(store, spec_of(obj).get("nodeName") or "")
        if where:
            meta(obj)["labels"] = {**labels_of(obj), **where}
    _refuse(resource, obj, [*metadata_causes(resource, obj), *content_causes(resource, obj)])
    complete_status(resource, obj)


def admit_change(resource: Resource, before: Obj, obj: Obj) -> None:
    complete_change(resource, obj)
    causes = [*metadata_causes(resource, obj), *content_causes(resource, obj)]
    if is_deleting(before):
        added = set(meta(obj).get("finalizers") or []) - set(meta(before).get("finalizers") or [])
        if added:
            text = (
                f"Forbidden: no new finalizers can be added if the object is being deleted, found new {sorted(added)}"
            )
            causes.append(Cause("metadata.finalizers", text, "FieldValueForbidden"))
    if resource.id == PODS.id:
        causes += pods.forbidden_changes(spec_of(before), spec_of(obj))
    if resource.id in (DEPLOYMENTS.id, DAEMON_SETS.id, REPLICA_SETS.id):
        old, new = spec_of(before).get("selector"), spec_of(obj).get("selector")
        if old != new:
            causes.append(Cause("spec.selector", "Invalid value: field is immutable"))
    _refuse(resource, obj, causes)


def admit_status(resource: Resource, obj: Obj) -> None:
    if not resource.custom:
        _refuse(resource, obj, list(status_causes(obj)))
        complete_status(resource, obj)


def topology_labels(store: Store, node: str) -> dict[str, str]:
    """Labels that a pod gets from its node when it is placed there."""
    found = store.find(NODES, Key("", node))
    labels = labels_of(found) if found is not None else {}
    return {name: labels[name] for name in TOPOLOGY_LABELS if name in labels}


def _check_namespace(resource: Resource, obj: Obj, store: Store) -> None:
    if not resource.namespaced:
        return
    name = meta(obj).get("namespace") or ""
    namespace = store.find(NAMESPACES, Key("", name))
    if namespace is None:
        raise problems.not_found("namespaces", name)
    if is_deleting(namespace):
        why = f"unable to create new content in namespace {name} because it is being terminated"
        message = f"namespace {name} is being terminated"
        causes = [{"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}]
        details = {"name": meta(obj).get("name", ""), "kind": resource.plural, "causes": causes}
        raise problems.forbidden(resource.title, meta(obj).get("name", ""), why, details)


def _check_service_account(pod: Obj, store: Store) -> None:
    name, namespace = spec_of(pod).get("serviceAccountName", "default"), meta(pod).get("namespace") or ""
    if store.find(SERVICE_ACCOUNTS, Key(namespace, name)) is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise problems.forbidden("pods", meta(pod).get("name") or meta(pod).get("generateName") or "", why)


def _refuse(resource: Resource, obj: Obj, causes: list[Cause]) -> None:
    if causes:
        name = meta(obj).get("name") or meta(obj).get("generateName") or ""
        raise problems.invalid(resource.kind, name, causes, resource.group)
