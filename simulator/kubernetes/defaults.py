"""Defaults that the API server adds to objects."""

import base64

from simulator.kubernetes import pods, problems
from simulator.kubernetes.objects import Obj, labels_of, meta, spec_of, status_of
from simulator.kubernetes.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    SERVICES,
    Resource,
)

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
_SERVICE_NETWORK = "10.96.0"
_CONDITION_TIMES = {
    NODES.id: ("lastHeartbeatTime", "lastTransitionTime"),
    PODS.id: ("lastProbeTime", "lastTransitionTime"),
}


def complete_new(resource: Resource, obj: Obj, *, toleration_s: int, serial: int) -> None:
    """Completes a new object in place. `serial` is unique to the object."""
    match resource.id:
        case PODS.id:
            pods.complete(obj, toleration_s)
        case NODES.id:
            spec = obj.setdefault("spec", {})
            if not any(taint.get("key") == NOT_READY_TAINT for taint in spec.get("taints") or []):
                spec["taints"] = [*(spec.get("taints") or []), {"key": NOT_READY_TAINT, "effect": "NoSchedule"}]
        case NAMESPACES.id:
            obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            obj["status"] = {"phase": "Active"}
            name = meta(obj).get("name", "")
            meta(obj)["labels"] = {"kubernetes.io/metadata.name": name, **labels_of(obj)}
        case SERVICES.id:
            spec = obj.setdefault("spec", {})
            spec.setdefault("type", "ClusterIP")
            spec.setdefault("sessionAffinity", "None")
            spec.setdefault(
                "clusterIP", "None" if spec["type"] == "ExternalName" else f"{_SERVICE_NETWORK}.{serial % 250}"
            )
            obj["status"] = {"loadBalancer": {}}
        case DEPLOYMENTS.id | REPLICA_SETS.id | DAEMON_SETS.id:
            _complete_workload(resource, obj)
        case DEFINITIONS.id:
            _complete_definition(obj)
    complete_change(resource, obj)
    if resource.has_status and not resource.custom:
        obj.setdefault("status", {})


def complete_change(resource: Resource, obj: Obj) -> None:
    if resource.id == SECRETS.id:
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None) or {}
        _check_base64(resource, obj, "data")
        encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
        if encoded:
            obj["data"] = {**(obj.get("data") or {}), **encoded}
    if resource.id == CONFIG_MAPS.id:
        _check_base64(resource, obj, "binaryData")
    if resource.id in (DEPLOYMENTS.id, REPLICA_SETS.id, DAEMON_SETS.id):
        template = spec_of(obj).get("template")
        if isinstance(template, dict) and isinstance(template.get("spec"), dict):
            template.setdefault("metadata", {})
            pods.complete_template(template["spec"])


def complete_status(resource: Resource, obj: Obj) -> None:
    """Sets missing times to null."""
    times = _CONDITION_TIMES.get(resource.id, ())
    for condition in status_of(obj).get("conditions") or []:
        for name in times:
            condition.setdefault(name, None)
    if resource.id != PODS.id:
        return
    for container in status_of(obj).get("containerStatuses") or []:
        container.setdefault("lastState", {})
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None:
            ended.setdefault("startedAt", None)
            ended.setdefault("finishedAt", None)


def _check_base64(resource: Resource, obj: Obj, field: str) -> None:
    for name, text in (obj.get(field) or {}).items():
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            raise problems.bad_request(f"{resource.kind}.{field}.{name}: illegal base64 data") from None


def _complete_workload(resource: Resource, obj: Obj) -> None:
    obj["status"] = {}
    spec = obj.setdefault("spec", {})
    match resource.id:
        case DEPLOYMENTS.id:
            spec.setdefault("replicas", 1)
            rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
            spec.setdefault("strategy", rolling)
            spec.setdefault("revisionHistoryLimit", 10)
            spec.setdefault("progressDeadlineSeconds", 600)
        case REPLICA_SETS.id:
            spec.setdefault("replicas", 1)
            obj["status"] = {"replicas": 0}
        case DAEMON_SETS.id:
            rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
            spec.setdefault("updateStrategy", rolling)
            if spec["updateStrategy"].get("type", "RollingUpdate") == "RollingUpdate":
                spec["updateStrategy"].setdefault("rollingUpdate", {}).setdefault("maxSurge", 0)
            counts = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
            obj["status"] = dict.fromkeys(counts, 0)


def _complete_definition(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.get("names") or {}
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})
