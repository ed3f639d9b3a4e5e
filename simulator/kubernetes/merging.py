"""Which lists are merged item by item, and by what key: what strategic merge patches and applies both need to know."""

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListKind:
    keys: tuple[str, ...] = ()
    """The fields that identify an item; with none, the items are themselves their identities."""


ONE_VALUE = ListKind(("",))
"""Of a map that is one value to who applies it, although it has parts."""

ListKinds = Callable[[Path], ListKind | None]
"""Of the list at this path of field names; None when the list is one value, replaced as a whole. Of a map: `ONE_VALUE`,
or None where it is merged."""

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
    """Taints and tolerations are replaced as a whole, in the real thing too."""
    if path[-1:] == ("ports",):
        in_container = len(path) > 1 and path[-2] in ("containers", "initContainers")
        return ListKind(("containerPort",)) if in_container else ListKind(("port",))
    if path == ("secrets",):
        return _BY_NAME
    if path[-2:] == ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        return ONE_VALUE
    return _KINDS.get(path[-1]) if path else None


def custom_lists(path: Path) -> ListKind | None:
    """Lists of custom resources are single values, but for those that all objects have."""
    return built_in_lists(path) if path[:1] == ("metadata",) else None
