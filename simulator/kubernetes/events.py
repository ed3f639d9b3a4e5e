"""Events: messages for people about an object."""

from simulator.kubernetes.objects import Obj, key_of, meta, uid_of
from simulator.kubernetes.problems import ApiProblem
from simulator.kubernetes.resources import EVENTS
from simulator.kubernetes.server import ApiServer


def record_event(
    server: ApiServer, about: Obj, reason: str, message: str, *, source: str, is_warning: bool = False
) -> None:
    """Records an event, or counts a repeated one. Drops it if its namespace is missing or ending."""
    store = server.store
    namespace = meta(about).get("namespace") or "default"
    name = f"{key_of(about).name}.{reason.lower()}.{uid_of(about)[:8]}"
    now = store.now
    key = key_of({"metadata": {"namespace": namespace, "name": name}})

    def count_again(event: Obj) -> None:
        event["count"] = event.get("count", 1) + 1
        event["lastTimestamp"] = now
        event["message"] = message

    if store.modify(EVENTS, key, count_again) is not None:
        return
    involved = {
        "kind": about["kind"],
        "apiVersion": about["apiVersion"],
        "namespace": meta(about).get("namespace", ""),
        "name": key_of(about).name,
        "uid": uid_of(about),
        "resourceVersion": meta(about)["resourceVersion"],
    }
    event = {
        "metadata": {"namespace": namespace, "name": name},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Warning" if is_warning else "Normal",
        "source": {"component": source},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        server.create(EVENTS, event)
    except ApiProblem:
        return
