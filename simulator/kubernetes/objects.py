"""Kubernetes objects as plain JSON data. Stored objects are never changed in place, only replaced."""

from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

Obj = dict[str, Any]
T = TypeVar("T")
EPOCH = "1970-01-01T00:00:00Z"


class Key(NamedTuple):
    """Identifies an object within its kind; the namespace is empty for cluster-wide objects."""

    namespace: str
    name: str


def clone(value: T) -> T:
    """A deep copy, as after a transfer over the network."""
    copied: T = msgspec.json.decode(msgspec.json.encode(value))
    return copied


def meta(obj: Obj) -> Obj:
    found: Obj = obj["metadata"]
    return found


def key_of(obj: Obj) -> Key:
    return Key(meta(obj).get("namespace") or "", meta(obj)["name"])


def name_of(obj: Obj) -> str:
    return str(meta(obj)["name"])


def uid_of(obj: Obj) -> str:
    return str(meta(obj)["uid"])


def version_of(obj: Obj) -> int:
    return int(meta(obj)["resourceVersion"])


def labels_of(obj: Obj) -> dict[str, str]:
    return meta(obj).get("labels") or {}


def spec_of(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def status_of(obj: Obj) -> Obj:
    return obj.get("status") or {}


def is_deleting(obj: Obj) -> bool:
    return bool(meta(obj).get("deletionTimestamp"))


def is_daemon(pod: Obj) -> bool:
    """True if a DaemonSet owns the pod."""
    return any(owner.get("kind") == "DaemonSet" for owner in meta(pod).get("ownerReferences") or ())


def is_finished(pod: Obj) -> bool:
    return status_of(pod).get("phase") in ("Succeeded", "Failed")


def condition(obj: Obj, kind: str) -> Obj | None:
    """The condition of that type, if the status has one."""
    return next((each for each in status_of(obj).get("conditions") or [] if each.get("type") == kind), None)


def holds(obj: Obj, kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def with_condition(conditions: list[Obj], new: Obj, now: str) -> list[Obj]:
    """The list with this condition; its transition time changes only with its status."""
    old = next((each for each in conditions if each.get("type") == new["type"]), None)
    same = old is not None and old.get("status") == new["status"]
    since = old.get("lastTransitionTime", now) if old is not None and same else now
    entry = {**new, "lastTransitionTime": since}
    if old is None:
        return [*conditions, entry]
    return [entry if each is old else each for each in conditions]


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference of the one controller."""
    return next((each for each in meta(obj).get("ownerReferences") or [] if each.get("controller")), None)


def owned_by(obj: Obj, uid: str) -> bool:
    return any(each.get("uid") == uid for each in meta(obj).get("ownerReferences") or [])


def owner_reference(owner: Obj) -> Obj:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def timestamp(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Obj) -> Obj:
    labels = (spec_of(obj).get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta(obj)[name] for name in _KEPT},
        "spec": {"replicas": spec_of(obj).get("replicas", 0)},
        "status": {
            "replicas": status_of(obj).get("replicas", 0),
            "selector": ",".join(f"{name}={value}" for name, value in labels.items()),
        },
    }


def scaled(obj: Obj, scale: Obj) -> Obj:
    """The object with the replicas that the Scale requests."""
    wanted = clone(obj)
    wanted["spec"]["replicas"] = (scale.get("spec") or {}).get("replicas", 0)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    wanted["metadata"]["resourceVersion"] = version or meta(obj)["resourceVersion"]
    return wanted
