"""Places waiting pods on nodes with room, and reports why a pod cannot be placed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from simulator.kubernetes import quantities
from simulator.kubernetes.controllers.actions import Action, Bind, set_status
from simulator.kubernetes.controllers.placing import obstacle
from simulator.kubernetes.objects import (
    Obj,
    is_deleting,
    is_finished,
    key_of,
    labels_of,
    meta,
    name_of,
    spec_of,
    status_of,
    with_condition,
)
from simulator.kubernetes.pods import requests_of
from simulator.kubernetes.resources import PODS
from simulator.kubernetes.selectors import by_spec

SCHEDULER = "default-scheduler"
_DEFAULT_PODS = 110


@dataclass(slots=True)
class _Room:
    node: Obj
    free: dict[str, Any]
    pods: list[Obj] = field(default_factory=list)

    def take(self, pod: Obj) -> None:
        self.pods.append(pod)
        for name, amount in _needs(pod).items():
            self.free[name] = self.free.get(name, 0) - amount

    def lacks(self, pod: Obj) -> str:
        for name, amount in _needs(pod).items():
            if amount > 0 and amount > self.free.get(name, 0):
                return "Too many pods" if name == "pods" else f"Insufficient {name}"
        return ""


def schedule(pods: list[Obj], nodes: list[Obj], now: str) -> list[Action]:
    waiting = [pod for pod in pods if _waits(pod)]
    if not waiting:
        return []
    rooms = {name_of(node): _Room(node, _allocatable(node)) for node in nodes}
    for pod in pods:
        room = rooms.get(spec_of(pod).get("nodeName") or "")
        if room is not None and not is_finished(pod):
            room.take(pod)
    waiting.sort(key=lambda pod: (-int(spec_of(pod).get("priority") or 0), meta(pod)["creationTimestamp"]))
    actions: list[Action] = []
    for pod in waiting:
        obstacles = {name: _obstacle(pod, room, rooms.values()) for name, room in rooms.items()}
        open_rooms = [rooms[name] for name, why in obstacles.items() if not why]
        if open_rooms:
            best = min(open_rooms, key=lambda room: (len(room.pods), name_of(room.node)))
            best.take(pod)
            actions.append(Bind(key_of(pod), name_of(best.node)))
        else:
            actions += _reported(pod, _why(obstacles.values(), len(rooms)), now)
    return actions


def _waits(pod: Obj) -> bool:
    spec = spec_of(pod)
    placed = spec.get("nodeName") or spec.get("schedulingGates") or spec.get("schedulerName", SCHEDULER) != SCHEDULER
    return not placed and not is_deleting(pod) and not is_finished(pod)


def _obstacle(pod: Obj, room: _Room, rooms: Iterable[_Room]) -> str:
    return obstacle(spec_of(pod), room.node) or room.lacks(pod) or _rival(pod, room, rooms)


def _rival(pod: Obj, room: _Room, rooms: Iterable[_Room]) -> str:
    """Checks required anti-affinity against the pods that are already placed."""
    affinity = (spec_of(pod).get("affinity") or {}).get("podAntiAffinity") or {}
    for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []:
        matches = by_spec(term.get("labelSelector"))
        namespaces = term.get("namespaces") or [meta(pod).get("namespace")]
        place = labels_of(room.node).get(term.get("topologyKey", ""))
        for other in rooms:
            if place is None or labels_of(other.node).get(term["topologyKey"]) != place:
                continue
            if any(meta(each).get("namespace") in namespaces and matches(each) for each in other.pods):
                return "didn't match pod anti-affinity rules"
    return ""


def _why(obstacles: Iterable[str], nodes: int) -> str:
    counted = Counter(obstacles)
    reasons = ", ".join(f"{count} node(s) {why}" for why, count in sorted(counted.items()))
    return f"0/{nodes} nodes are available: {reasons}." if reasons else "no nodes available to schedule pods"


def _reported(pod: Obj, why: str, now: str) -> list[Action]:
    status = status_of(pod)
    entry = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastProbeTime": None,
    }
    return set_status(PODS, pod, {**status, "conditions": with_condition(status.get("conditions") or [], entry, now)})


def _allocatable(node: Obj) -> dict[str, Any]:
    reported = status_of(node).get("allocatable") or status_of(node).get("capacity") or {}
    return {"pods": _DEFAULT_PODS, **{name: quantities.parse(amount) for name, amount in reported.items()}}


def _needs(pod: Obj) -> dict[str, Any]:
    return {**requests_of(spec_of(pod)), "pods": 1}
