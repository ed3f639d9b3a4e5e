"""Lists that are merged item by item, and their keys, for strategic merge patches and applies."""

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListKind:
    keys: tuple[str, ...] = ()
    """Fields that identify an item; empty for lists of plain values."""


ONE_VALUE = ListKind(("",))
"""Kind of a map that an apply replaces as one value."""

ListKinds = Callable[[Path], ListKind | None]
"""The kind of the list at a path of field names; None if the list is replaced as a whole.

For a map: `ONE_VALUE`, or None if it is merged.
"""

_BY_NAME = ListKind(("name",))
_BY_TYPE = ListKind(("type",))
_SET = ListKind()
_KINDS: dict[str, ListKind] = {
    "containers": _BY_NAME,
    "initContainers": _BY_NAME,
    "ephemeralContainers": _BY_NAME,
    "env": _BY_NAME,
    "volumes": _BY_NAME,
    "imagePullSecrets": _BY_NAME,
    "volumeMounts": ListKind(("mountPath",)),
    "volumeDevices": ListKind(("devicePath",)),
    "conditions": _BY_TYPE,
    "addresses": _BY_TYPE,
    "ownerReferences": ListKind(("uid",)),
    "finalizers": _SET,
    "hostAliases": ListKind(("ip",)),
    "podIPs": ListKind(("ip",)),
    "topologySpreadConstraints": ListKind(("topologyKey",)),
    **dict.fromkeys(
        (
            "roleRef", "selector", "labelSelector", "namespaceSelector", "nodeSelector", "secretKeyRef",
            "configMapKeyRef", "fieldRef", "resourceFieldRef", "involvedObject",
        ),
        ONE_VALUE,
    ),
}  # fmt: skip


def built_in_lists(path: Path) -> ListKind | None:
    """Lists of built-in kinds. Taints and tolerations are replaced as a whole, as in real Kubernetes."""
    if path[-1:] == ("ports",):
        in_container = len(path) > 1 and path[-2] in ("containers", "initContainers")
        return ListKind(("containerPort",)) if in_container else ListKind(("port",))
    if path == ("secrets",):
        return _BY_NAME
    if path[-2:] == ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        return ONE_VALUE
    return _KINDS.get(path[-1]) if path else None


def custom_lists(path: Path) -> ListKind | None:
    """Lists of custom resources: only those in the metadata are merged."""
    return built_in_lists(path) if path[:1] == ("metadata",) else None
