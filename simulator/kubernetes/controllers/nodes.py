"""Lifecycle of nodes: taints follow conditions; pods leave nodes that are not ready; pods of missing nodes end."""

from dataclasses import dataclass

from simulator.kubernetes.controllers.actions import Action, Change, Delete, Remove, set_status
from simulator.kubernetes.controllers.placing import covers
from simulator.kubernetes.objects import (
    Obj,
    condition,
    holds,
    is_deleting,
    is_finished,
    key_of,
    name_of,
    spec_of,
    status_of,
    timestamp,
    uid_of,
    unix_s,
    with_condition,
)
from simulator.kubernetes.resources import NODES, PODS

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
CORDONED = "node.kubernetes.io/unschedulable"
_OURS = (NOT_READY, UNREACHABLE, CORDONED)


@dataclass(frozen=True, slots=True)
class Verdict:
    actions: list[Action]
    wake_s: float | None = None
    """Unix time at which there may be more to do."""


def taint_nodes(nodes: list[Obj], now_s: float) -> list[Action]:
    actions: list[Action] = []
    for node in nodes:
        taints = spec_of(node).get("taints") or []
        ours = [taint for taint in taints if taint.get("key") in _OURS]
        wanted = _wanted_taints(node)
        if {(taint["key"], taint["effect"]) for taint in ours} != set(wanted):
            others = [taint for taint in taints if taint.get("key") not in _OURS]
            added = [_taint(key, effect, ours, now_s) for key, effect in wanted]
            actions.append(Change(NODES, key_of(node), _with_taints([*others, *added])))
    return actions


def evict(pods: list[Obj], nodes: list[Obj], now_s: float) -> Verdict:
    """Deletes pods that do not, or no longer, tolerate a NoExecute taint of their node."""
    by_name = {name_of(node): node for node in nodes if _repels(node)}
    if not by_name:
        return Verdict([])
    actions: list[Action] = []
    wakes: list[float] = []
    for pod in pods:
        node = by_name.get(spec_of(pod).get("nodeName") or "")
        if node is None or is_finished(pod):
            continue
        ready = condition(node, "Ready")
        if (ready or {}).get("status") == "Unknown" and holds(pod, "Ready"):
            actions += _not_ready(pod, timestamp(now_s))
        due_s = None if is_deleting(pod) else _due_s(pod, node)
        if due_s is not None and due_s <= now_s:
            actions.append(Delete(PODS, key_of(pod), uid_of(pod)))
        elif due_s is not None:
            wakes.append(due_s)
    return Verdict(actions, min(wakes, default=None))


def collect_orphans(pods: list[Obj], nodes: list[Obj], now_s: float) -> list[Action]:
    """Removes pods whose node no longer exists."""
    known = {name_of(node) for node in nodes}
    return [
        Remove(PODS, key_of(pod), _ended_status(pod, timestamp(now_s)))
        for pod in pods
        if spec_of(pod).get("nodeName") and spec_of(pod)["nodeName"] not in known
    ]


def _repels(node: Obj) -> bool:
    return any(taint.get("effect") == "NoExecute" for taint in spec_of(node).get("taints") or [])


def _wanted_taints(node: Obj) -> list[tuple[str, str]]:
    cordoned = [(CORDONED, "NoSchedule")] if spec_of(node).get("unschedulable") else []
    status = (condition(node, "Ready") or {}).get("status", "Unknown")
    if status == "True":
        return cordoned
    key = UNREACHABLE if status == "Unknown" and condition(node, "Ready") else NOT_READY
    return [*cordoned, (key, "NoSchedule"), (key, "NoExecute")]


def _taint(key: str, effect: str, old: list[Obj], now_s: float) -> Obj:
    same = next((taint for taint in old if (taint["key"], taint["effect"]) == (key, effect)), None)
    return same or {"key": key, "effect": effect, "timeAdded": timestamp(now_s)}


def _with_taints(taints: list[Obj]) -> "_TaintChange":
    return _TaintChange(taints)


@dataclass(frozen=True, slots=True)
class _TaintChange:
    taints: list[Obj]

    def __call__(self, node: Obj) -> None:
        node.setdefault("spec", {})["taints"] = self.taints
        if not self.taints:
            del node["spec"]["taints"]


def _due_s(pod: Obj, node: Obj) -> float | None:
    """Unix time at which the pod must leave; None if it may stay."""
    due: list[float] = []
    for taint in spec_of(node).get("taints") or []:
        if taint.get("effect") != "NoExecute":
            continue
        since_s = unix_s(taint["timeAdded"]) if taint.get("timeAdded") else 0.0
        covering = [each for each in spec_of(pod).get("tolerations") or [] if covers(each, taint)]
        if not covering:
            due.append(since_s)
            continue
        limits = [each["tolerationSeconds"] for each in covering if each.get("tolerationSeconds") is not None]
        if len(limits) == len(covering):
            due.append(since_s + min(limits))
    return min(due, default=None)


def _not_ready(pod: Obj, now: str) -> list[Action]:
    status = status_of(pod)
    entry = {"type": "Ready", "status": "False", "reason": "NodeNotReady", "lastProbeTime": None}
    return set_status(PODS, pod, {**status, "conditions": with_condition(status.get("conditions") or [], entry, now)})


def _ended_status(pod: Obj, now: str) -> Obj | None:
    if is_finished(pod):
        return None
    status = status_of(pod)
    entry = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastProbeTime": None,
    }
    conditions = with_condition(status.get("conditions") or [], entry, now)
    return {**status, "phase": "Failed", "conditions": conditions}
