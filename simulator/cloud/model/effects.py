"""What the cloud's core may ask its shell for: answers to requests, requests to the regions."""

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
    name_in_region: str
    key: ClusterKey
    uid: str
    authorized_networks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DropCluster:
    region: str
    name_in_region: str


@dataclass(frozen=True, slots=True)
class PlaceNode:
    region: str
    name_in_region: str
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
    """Preempts a node after `notice_s`, which may be 0."""

    region: str
    name_in_region: str
    node: NodeName
    notice_s: float


@dataclass(frozen=True, slots=True)
class RemoveNode:
    region: str
    name_in_region: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Cordons a node and evicts its pods; repeated until the region reports that they have left."""

    region: str
    name_in_region: str
    node: NodeName


@dataclass(frozen=True, slots=True)
class SilenceNode:
    """Makes a node's kubelet stop reporting, or report again; its programs stop and continue with it."""

    region: str
    name_in_region: str
    node: NodeName
    instance: InstanceId
    silent: bool


@dataclass(frozen=True, slots=True)
class AnnounceMaintenance:
    """Announces that a node will stop for maintenance of its host."""

    region: str
    name_in_region: str
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
