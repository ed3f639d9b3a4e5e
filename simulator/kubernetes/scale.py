"""The Scale of a deployment or replica set: its number of replicas, seen and changed by itself."""

from simulator.kubernetes.objects import Obj, clone, meta, spec_of, status_of

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
    """The object with the replicas that the Scale asks for."""
    wanted = clone(obj)
    wanted["spec"]["replicas"] = (scale.get("spec") or {}).get("replicas", 0)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    wanted["metadata"]["resourceVersion"] = version or meta(obj)["resourceVersion"]
    return wanted
