"""Daemon sets: one pod on every node that accepts it."""

from simulator.kubernetes.controllers.actions import Action, Create, Delete, set_status
from simulator.kubernetes.controllers.placing import obstacle
from simulator.kubernetes.controllers.workloads import bound_of, pod_from, template_hash
from simulator.kubernetes.objects import (
    Obj,
    holds,
    is_deleting,
    is_finished,
    key_of,
    labels_of,
    meta,
    name_of,
    owned_by,
    spec_of,
    uid_of,
)
from simulator.kubernetes.resources import DAEMON_SETS, PODS

HASH = "controller-revision-hash"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


def keep_daemons(daemon_set: Obj, pods: list[Obj], nodes: list[Obj]) -> list[Action]:
    if is_deleting(daemon_set):
        return []
    wanted_hash = template_hash(spec_of(daemon_set)["template"])
    on_node: dict[str, list[Obj]] = {}
    for pod in pods:
        if owned_by(pod, uid_of(daemon_set)):
            on_node.setdefault(_node_of(pod), []).append(pod)
    spec = _tolerant(spec_of(daemon_set)["template"]["spec"])
    fitting = {name_of(node) for node in nodes if not obstacle(spec, node)}
    actions: list[Action] = []
    current: list[Obj] = []
    for node in nodes:
        here = on_node.get(name_of(node), [])
        alive = [pod for pod in here if not is_finished(pod)]
        staying = [] if obstacle(spec, node, repelling=("NoExecute",)) else alive[:1]
        current += [pod for pod in staying if not is_deleting(pod)]
        # On a node that is shutting down, an ended pod is not replaced: the node would refuse the new one.
        leaving = [pod for pod in here if pod not in staying and (holds(node, "Ready") or not is_finished(pod))]
        actions += [Delete(PODS, key_of(pod), uid_of(pod)) for pod in leaving if not is_deleting(pod)]
        if name_of(node) in fitting and not alive and (holds(node, "Ready") or not here):
            actions.append(Create(PODS, _daemon(daemon_set, name_of(node), wanted_hash)))
    actions += _renewed(daemon_set, current, wanted_hash, len(fitting))
    return actions + set_status(DAEMON_SETS, daemon_set, _status(daemon_set, current, len(fitting), wanted_hash))


def _renewed(daemon_set: Obj, current: list[Obj], wanted_hash: str, wanted: int) -> list[Action]:
    """Replaces pods of an old template a few at a time."""
    strategy = spec_of(daemon_set).get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return []
    most = max(1, bound_of((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), wanted, up=True))
    missing = wanted - sum(holds(pod, "Ready") for pod in current)
    old = sorted(
        (pod for pod in current if labels_of(pod).get(HASH) != wanted_hash), key=lambda pod: holds(pod, "Ready")
    )
    unready = [pod for pod in old if not holds(pod, "Ready")]
    ready = [pod for pod in old if holds(pod, "Ready")][: max(0, most - missing)]
    return [Delete(PODS, key_of(pod), uid_of(pod)) for pod in (*unready, *ready)]


def _daemon(daemon_set: Obj, node: str, wanted_hash: str) -> Obj:
    pod = pod_from(daemon_set, {HASH: wanted_hash})
    pod["spec"] = _tolerant(pod["spec"])
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod["spec"]["affinity"] = {**(pod["spec"].get("affinity") or {}), "nodeAffinity": required}
    return pod


def _tolerant(spec: Obj) -> Obj:
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    if spec.get("hostNetwork"):
        added.append({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"})
    return {**spec, "tolerations": [*(spec.get("tolerations") or []), *added]}


def _node_of(pod: Obj) -> str:
    """The pod's node, or the node that its affinity requires."""
    spec = spec_of(pod)
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            return str(field["values"][0])
    return ""


def _status(daemon_set: Obj, current: list[Obj], wanted: int, wanted_hash: str) -> Obj:
    ready = sum(holds(pod, "Ready") for pod in current)
    return {
        "currentNumberScheduled": len(current),
        "desiredNumberScheduled": wanted,
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": wanted - ready,
        "updatedNumberScheduled": sum(labels_of(pod).get(HASH) == wanted_hash for pod in current),
        "observedGeneration": meta(daemon_set).get("generation", 1),
    }
