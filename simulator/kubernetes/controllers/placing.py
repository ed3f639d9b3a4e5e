"""Rules for placing a pod on a node: selectors, affinity, taints."""

from typing import Any

from simulator.kubernetes.objects import Obj, labels_of, name_of, spec_of
from simulator.kubernetes.selectors import requirement

_BLOCKS = ("NoSchedule", "NoExecute")


def tolerates(tolerations: list[Obj], taint: Obj) -> bool:
    return any(covers(each, taint) for each in tolerations)


def covers(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint.get("key") and same_value


def obstacle(pod_spec: Obj, node: Obj, repelling: tuple[str, ...] = _BLOCKS) -> str:
    """Why the pod may not be placed there, apart from lack of room; empty if it may."""
    if not selects(pod_spec, node):
        return "didn't match Pod's node affinity/selector"
    for taint in node_taints(node):
        if taint.get("effect") in repelling and not tolerates(pod_spec.get("tolerations") or [], taint):
            return f"had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    return ""


def node_taints(node: Obj) -> list[Obj]:
    spec = spec_of(node)
    taints = list(spec.get("taints") or [])
    if spec.get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    return taints


def selects(pod_spec: Obj, node: Obj) -> bool:
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: Any = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_matches(term, node) for term in required.get("nodeSelectorTerms") or [])


def _matches(term: Obj, node: Obj) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    by_labels = all(requirement(each).met_by(labels_of(node)) for each in expressions)
    return by_labels and all(requirement(each).met_by({"metadata.name": name_of(node)}) for each in fields)
