"""Deployments, their replica sets, and the pods of those."""

import hashlib
import math
from typing import Any

import msgspec

from simulator.kubernetes.controllers.actions import Action, Change, Create, Delete, set_status
from simulator.kubernetes.objects import (
    Obj,
    clone,
    controller_of,
    holds,
    is_deleting,
    is_finished,
    key_of,
    labels_of,
    meta,
    name_of,
    owned_by,
    owner_reference,
    spec_of,
    status_of,
    uid_of,
    with_condition,
)
from simulator.kubernetes.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from simulator.kubernetes.selectors import by_spec

TEMPLATE_HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Obj) -> str:
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:9])


def keep_replica_sets(deployment: Obj, replica_sets: list[Obj], now: str) -> list[Action]:
    """Grows the replica set of the current template and shrinks the others, within the allowed surge and gap."""
    if is_deleting(deployment):
        return []
    own = [each for each in replica_sets if _belongs(each, deployment)]
    wanted_hash = template_hash(spec_of(deployment)["template"])
    new = next((each for each in own if labels_of(each).get(TEMPLATE_HASH) == wanted_hash), None)
    old = [each for each in own if each is not new]
    actions: list[Action] = []
    if new is None:
        actions.append(Create(REPLICA_SETS, _replica_set(deployment, wanted_hash, _next_revision(own))))
    else:
        actions += _rolled(deployment, new, old)
        actions += _forgotten(deployment, old)
    return actions + set_status(DEPLOYMENTS, deployment, _deployment_status(deployment, new, own, now))


def keep_pods(replica_set: Obj, pods: list[Obj]) -> list[Action]:
    own = [pod for pod in pods if _belongs(pod, replica_set)]
    active = [pod for pod in own if not is_finished(pod) and not is_deleting(pod)]
    wanted = 0 if is_deleting(replica_set) else spec_of(replica_set).get("replicas", 1)
    ready = [pod for pod in active if holds(pod, "Ready")]
    matches = by_spec({"matchLabels": spec_of(replica_set)["template"].get("metadata", {}).get("labels") or {}})
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(matches(pod) for pod in active),
        "readyReplicas": len(ready),
        "availableReplicas": len(ready),
        "observedGeneration": meta(replica_set).get("generation", 1),
    }
    actions = set_status(REPLICA_SETS, replica_set, status)
    if len(active) < wanted:
        actions += [Create(PODS, pod_from(replica_set)) for _ in range(wanted - len(active))]
    surplus = sorted(active, key=lambda pod: (holds(pod, "Ready"), bool(spec_of(pod).get("nodeName"))))
    actions += [Delete(PODS, key_of(pod), uid_of(pod)) for pod in surplus[: max(0, len(active) - wanted)]]
    return actions


def pod_from(owner: Obj, labels: dict[str, str] | None = None) -> Obj:
    template = clone(spec_of(owner)["template"])
    fields = template.get("metadata") or {}
    return {
        "metadata": {
            "generateName": f"{name_of(owner)}-",
            "namespace": meta(owner)["namespace"],
            "labels": {**(fields.get("labels") or {}), **(labels or {})},
            "annotations": fields.get("annotations") or {},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": template["spec"],
    }


def bound_of(value: Any, replicas: int, *, up: bool) -> int:
    """An absolute number, or a percentage of the replicas."""
    if isinstance(value, str) and value.endswith("%"):
        share = replicas * float(value[:-1]) / 100
        return math.ceil(share) if up else math.floor(share)
    return int(value or 0)


def _belongs(obj: Obj, owner: Obj) -> bool:
    return owned_by(obj, uid_of(owner)) and controller_of(obj) is not None


def _replica_set(deployment: Obj, wanted_hash: str, revision: int) -> Obj:
    template = clone(spec_of(deployment)["template"])
    labels = {**((template.get("metadata") or {}).get("labels") or {}), TEMPLATE_HASH: wanted_hash}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = clone(spec_of(deployment)["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: wanted_hash}
    return {
        "metadata": {
            "name": f"{name_of(deployment)}-{wanted_hash}",
            "namespace": meta(deployment)["namespace"],
            "labels": labels,
            "annotations": {REVISION: str(revision)},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }


def _rolled(deployment: Obj, new: Obj, old: list[Obj]) -> list[Action]:
    spec = spec_of(deployment)
    if spec.get("paused"):
        return []
    wanted, strategy = spec.get("replicas", 1), spec.get("strategy") or {}
    of_old = sum(spec_of(each).get("replicas", 0) for each in old)
    if strategy.get("type") == "Recreate":
        actions = [action for each in old for action in _scaled(each, 0)]
        still_there = sum(status_of(each).get("replicas", 0) for each in old)
        return actions if of_old or still_there else _scaled(new, wanted)
    rolling = strategy.get("rollingUpdate") or {}
    surge = bound_of(rolling.get("maxSurge", "25%"), wanted, up=True)
    missing = bound_of(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    if surge == 0 and missing == 0:
        missing = 1
    of_new = spec_of(new).get("replicas", 0)
    grown = wanted if of_new >= wanted else min(wanted, max(of_new, wanted + surge - of_old))
    actions = _scaled(new, grown)
    available = sum(_available(each) for each in (new, *old))
    spare = max(0, available - (wanted - missing))
    for each in old:
        replicas = spec_of(each).get("replicas", 0)
        unavailable = max(0, replicas - _available(each))
        cut = min(replicas, unavailable + spare)
        spare -= max(0, cut - unavailable)
        actions += _scaled(each, replicas - cut)
    return actions


def _available(replica_set: Obj) -> int:
    """Available replicas, at most the wanted ones: the status may still count pods that are about to end."""
    return int(min(spec_of(replica_set).get("replicas", 0), status_of(replica_set).get("availableReplicas", 0)))


def _scaled(replica_set: Obj, replicas: int) -> list[Action]:
    if spec_of(replica_set).get("replicas") == replicas:
        return []
    return [Change(REPLICA_SETS, key_of(replica_set), lambda obj: obj["spec"].update(replicas=replicas))]


def _forgotten(deployment: Obj, old: list[Obj]) -> list[Action]:
    empty = [each for each in old if not spec_of(each).get("replicas") and not status_of(each).get("replicas")]
    empty.sort(key=_revision)
    surplus = max(0, len(empty) - int(spec_of(deployment).get("revisionHistoryLimit", 10)))
    return [Delete(REPLICA_SETS, key_of(each), uid_of(each)) for each in empty[:surplus]]


def _deployment_status(deployment: Obj, new: Obj | None, own: list[Obj], now: str) -> Obj:
    counts = {name: sum(status_of(each).get(name, 0) for each in own) for name in ("replicas", "readyReplicas")}
    available = sum(status_of(each).get("availableReplicas", 0) for each in own)
    updated = status_of(new).get("replicas", 0) if new is not None else 0
    wanted = spec_of(deployment).get("replicas", 1)
    rolling = (spec_of(deployment).get("strategy") or {}).get("rollingUpdate") or {}
    enough = available >= wanted - bound_of(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    done = updated >= wanted and available >= wanted and counts["replicas"] == updated
    conditions = with_condition(
        status_of(deployment).get("conditions") or [],
        {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment has {'' if enough else 'no '}minimum availability.",
        },
        now,
    )
    progressing = {
        "type": "Progressing",
        "status": "True",
        "reason": "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
        "message": f"{updated} of {wanted} replicas are updated.",
    }
    return {
        **counts,
        "updatedReplicas": updated,
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
        "observedGeneration": meta(deployment).get("generation", 1),
        "conditions": with_condition(conditions, progressing, now),
    }


def _next_revision(own: list[Obj]) -> int:
    return max((_revision(each) for each in own), default=0) + 1


def _revision(replica_set: Obj) -> int:
    text = (meta(replica_set).get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0
