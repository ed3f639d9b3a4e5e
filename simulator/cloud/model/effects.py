"""Everything that the cloud's core may ask its shell for: answers to who asked, requests to the regions."""

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.cloud.model.names import ClusterKey, InstanceId, NodeName
from simulator.cloud.model.requests import Outcome
from simulator.cloud.model.state import Taint


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class HostCluster:
    region: str
    called: str
    key: ClusterKey
    uid: str
    authorized_networks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DropCluster:
    region: str
    called: str


@dataclass(frozen=True, slots=True)
class PlaceNode:
    region: str
    called: str
    node: NodeName
    instance: InstanceId
    project: str
    zone: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Mapping[str, str]
    shutdown_grace_s: float
    service_account: str


@dataclass(frozen=True, slots=True)
class WarnNode:
    """It was preempted: it has this long, which may be nothing at all."""

    region: str
    called: str
    node: NodeName
    notice_s: float


@dataclass(frozen=True, slots=True)
class RemoveNode:
    region: str
    called: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Cordon it and evict its pods; asked again until the region says that they have left."""

    region: str
    called: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class SilenceNode:
    """Its kubelet stops reporting, or reports again; its programs stop and continue with it."""

    region: str
    called: str
    node: NodeName
    instance: InstanceId
    silent: bool


@dataclass(frozen=True, slots=True)
class AnnounceMaintenance:
    """Its host will be maintained, and it stops then."""

    region: str
    called: str
    node: NodeName
    instance: InstanceId


RegionRequest = (
    HostCluster | DropCluster | PlaceNode | WarnNode | RemoveNode | DrainNode | SilenceNode | AnnounceMaintenance
)


@dataclass(frozen=True, slots=True)
class TellRegion:
    number: int
    request: RegionRequest


Effect = Answer | TellRegion
