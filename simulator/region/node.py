"""One machine of a cluster: its object in the API, its agent and its metadata."""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.kubelet.kubelet import Kubelet
from simulator.kubernetes.objects import Key, Obj, clone, status_of, with_condition
from simulator.kubernetes.resources import NODES
from simulator.kubernetes.server import ApiServer
from simulator.metadata_server import MAINTENANCE, PREEMPTED, Metadata
from simulator.region.settings import MaintenanceEvent, NodeRequest

ORDINARY_S = 15.0
"""Seconds for ordinary pods in the usual notice of 30 s; critical pods get the rest."""
_SPOT_LABEL = "cloud.google.com/gke-spot"
_VERSION = "v1.35.0-tradewind-simulator"


class NodeState(StrEnum):
    READY = "ready"
    PREEMPTED = "preempted"
    REMOVING = "removing"
    LOST = "lost"


@dataclass(slots=True)
class RegionNode:
    name: str
    uid: str
    request: NodeRequest
    kubelet: Kubelet
    metadata: Metadata
    metadata_host: str
    state: NodeState = NodeState.READY
    silent: bool = False
    """True while it hangs: its kubelet does not report, and its programs do not run."""
    ending: "asyncio.Task[None] | None" = None
    running: "asyncio.Task[None] | None" = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its object, pods and processes are gone."""


def windows(notice_s: float) -> tuple[float, float]:
    """Splits the notice between ordinary and critical pods."""
    ordinary_s = max(min(ORDINARY_S, notice_s), notice_s - ORDINARY_S)
    return ordinary_s, notice_s - ordinary_s


def node_object(name: str, region: str, host_ip: str, request: NodeRequest, now: str) -> Obj:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": region,
        **({"topology.kubernetes.io/zone": request.zone} if request.zone else {}),
        **request.labels,
    }
    taints = [
        {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
        for taint in request.taints
    ]
    capacity = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110", **request.capacity}
    annotations = {**request.annotations, "container.googleapis.com/instance_id": request.instance_id}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"providerID": request.provider_id or f"gce://simulated/{request.zone}/{name}", "taints": taints},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": host_ip}, {"type": "Hostname", "address": name}],
            "conditions": [_ready("True", "KubeletReady", "kubelet is posting ready status", now), *_pressures(now)],
            "nodeInfo": _info(request.instance_id),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    }


def cordon(node: Obj) -> None:
    node.setdefault("spec", {})["unschedulable"] = True


def set_ready(server: ApiServer, name: str, status: str, reason: str, message: str) -> None:
    now = server.store.now

    def change(node: Obj) -> None:
        old = clone(status_of(node).get("conditions") or [])
        node["status"] = {
            **status_of(node),
            "conditions": with_condition(old, _ready(status, reason, message, now), now),
        }

    server.store.modify(NODES, Key("", name), change)


def new_metadata(name: str, project: str, request: NodeRequest) -> Metadata:
    zone = f"projects/{project}/zones/{request.zone}"
    return Metadata(
        {
            PREEMPTED: "FALSE",
            MAINTENANCE: MaintenanceEvent.NONE,
            "instance/name": name,
            "instance/hostname": f"{name}.{request.zone}.c.{project}.internal",
            "instance/zone": zone,
            "instance/id": request.instance_id,
            "instance/scheduling/preemptible": "TRUE" if _SPOT_LABEL in request.labels else "FALSE",
            "project/project-id": project,
        }
    )


def _ready(status: str, reason: str, message: str, now: str) -> Obj:
    return {"type": "Ready", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now}


def _pressures(now: str) -> list[Obj]:
    kinds = {"MemoryPressure": "KubeletHasSufficientMemory", "DiskPressure": "KubeletHasNoDiskPressure"}
    kinds["PIDPressure"] = "KubeletHasSufficientPID"
    return [
        {"type": kind, "status": "False", "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
        for kind, reason in kinds.items()
    ]


def _info(instance_id: str) -> Obj:
    return {
        "machineID": instance_id,
        "systemUUID": instance_id,
        "bootID": instance_id,
        "kernelVersion": "simulated",
        "osImage": "Container-Optimized OS (simulated)",
        "containerRuntimeVersion": "simulated://1.0",
        "kubeletVersion": _VERSION,
        "kubeProxyVersion": _VERSION,
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
