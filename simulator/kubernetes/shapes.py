"""Checks the types of the fields of built-in objects: lists, maps, text, numbers."""

from typing import Any

from runtime.errors import TradewindError
from simulator.kubernetes import quantities
from simulator.kubernetes.objects import Obj
from simulator.kubernetes.problems import bad_request

_LISTS_OF_MAPS = frozenset(
    {
        "containers", "initContainers", "env", "envFrom", "volumes", "volumeMounts", "tolerations", "taints", "ports",
        "conditions", "ownerReferences", "rules", "subjects", "matchExpressions", "nodeSelectorTerms", "matchFields",
        "imagePullSecrets", "items", "sources", "versions", "addresses", "containerStatuses", "initContainerStatuses",
        "managedFields",
    }
)  # fmt: skip
_LISTS = frozenset({"command", "args", "finalizers", "verbs", "apiGroups", "resourceNames"})
_MAPS = frozenset(
    {
        "metadata", "spec", "template", "selector", "affinity", "nodeAffinity", "podAntiAffinity", "valueFrom",
        "roleRef", "strategy", "updateStrategy", "rollingUpdate", "names", "labelSelector", "securityContext",
        "involvedObject", "fieldRef", "secretKeyRef", "configMapKeyRef", "emptyDir", "hostPath", "secret", "configMap",
        "downwardAPI", "projected", "resourceFieldRef", "secretRef", "configMapRef", "podAffinity",
    }
)  # fmt: skip
_TEXTS = frozenset(
    {
        "name", "generateName", "namespace", "group", "kind", "plural", "singular", "nodeName", "serviceAccountName",
        "restartPolicy", "image", "mountPath", "subPath", "key", "operator", "effect", "priorityClassName", "scope",
        "topologyKey", "workingDir", "schedulerName", "fieldPath", "providerID", "timeAdded", "uid",
        "path", "resource", "secretName", "value", "prefix", "hostname", "type",
    }
)  # fmt: skip
_NUMBERS = frozenset(
    {"replicas", "terminationGracePeriodSeconds", "tolerationSeconds", "priority", "revisionHistoryLimit"}
)
_TEXT_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData", "binaryData"})
_AMOUNTS = frozenset({"limits", "requests", "capacity", "allocatable"})
_TOP_MAPS = ("metadata", "spec", "status")
_OF_METADATA = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})
_OF_OBJECTS = frozenset({"data", "binaryData", "stringData"})
_OPAQUE = frozenset({"fieldsV1", "schema", "openAPIV3Schema"})


def shaped(obj: Obj, *, custom: bool) -> Obj:
    """The object without null fields and without empty ones that mean absence; raises a bad request for wrong types."""
    obj = {**obj, "metadata": _dense(obj.get("metadata"))} if custom else _dense(obj)
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    try:
        for name in _TOP_MAPS if not custom else _TOP_MAPS[:1]:
            if obj.get(name) is not None and not isinstance(obj[name], dict):
                raise _Wrong(name, obj[name], "an object")
        _check({"metadata": obj.get("metadata")} if custom else obj, "")
    except _Wrong as wrong:
        kind, version = obj["kind"], obj["apiVersion"].rpartition("/")[2]
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {wrong}') from None
    obj["metadata"] = _without_empty(obj["metadata"], _OF_METADATA)
    return obj if custom else _without_empty(obj, _OF_OBJECTS)


class _Wrong(TradewindError):
    def __init__(self, path: str, value: object, wanted: str) -> None:
        super().__init__(f"json: cannot unmarshal {type(value).__name__} into field {path}: it must be {wanted}")


class _NoQuantity(_Wrong):
    def __str__(self) -> str:
        return r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _without_empty(fields: Obj, names: frozenset[str]) -> Obj:
    return {name: value for name, value in fields.items() if value not in ({}, []) or name not in names}


def _dense(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _dense(inner) for name, inner in value.items() if inner is not None}
    return [_dense(each) for each in value] if isinstance(value, list) else value


def _check(value: Any, path: str) -> None:
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check(each, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        at = f"{path}.{name}" if path else name
        if inner is None or name in _OPAQUE:
            continue
        if name in _TEXT_MAPS or name in _AMOUNTS:
            _check_flat(inner, at, (str,) if name in _TEXT_MAPS else (str, int, float))
            continue
        if name in _LISTS | _LISTS_OF_MAPS and not isinstance(inner, list):
            raise _Wrong(at, inner, "a list")
        for each in inner if name in _LISTS | _LISTS_OF_MAPS else ():
            if not isinstance(each, dict if name in _LISTS_OF_MAPS else str):
                raise _Wrong(at, each, "a list of objects" if name in _LISTS_OF_MAPS else "a list of texts")
        is_map = name in _MAPS or (name == "resources" and not path.startswith("rules"))
        if is_map and not isinstance(inner, dict):
            raise _Wrong(at, inner, "an object")
        if name in _TEXTS and at != "value" and not isinstance(inner, str):
            raise _Wrong(at, inner, "text")
        if name in _NUMBERS and (not isinstance(inner, int) or isinstance(inner, bool)):
            raise _Wrong(at, inner, "a number")
        _check(inner, at)


def _check_flat(value: Any, path: str, allowed: tuple[type, ...]) -> None:
    if not isinstance(value, dict):
        raise _Wrong(path, value, "an object")
    for name, inner in value.items():
        if not isinstance(inner, allowed):
            raise _Wrong(f"{path}.{name}", inner, "text")
        if int in allowed and not quantities.is_quantity(inner):
            raise _NoQuantity(f"{path}.{name}", inner, "a quantity")
