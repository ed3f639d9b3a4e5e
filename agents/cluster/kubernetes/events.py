"""Everything that can happen to the pods and nodes of a cluster."""

from dataclasses import dataclass
from datetime import datetime

from agents.cluster.kubernetes.observations import PodObservation
from messages.clusters import NodeObservation, WorkerTemplate
from messages.ids import JobName


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


@dataclass(frozen=True, slots=True)
class StartRequested:
    """The cluster-controller wants a pod for a new place."""

    at_s: float
    uid: str
    job: JobName
    template: WorkerTemplate


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The cluster-controller wants a place to end. Repeated until the place has ended."""

    at_s: float
    uid: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class PodSeen:
    at_s: float
    wall_s: float
    """Unix seconds at `at_s`: deadlines in the API are dates."""
    pod: PodObservation


@dataclass(frozen=True, slots=True)
class PodVanished:
    """The pod is no longer in the API."""

    at_s: float
    pod: PodObservation
    """The last observation of the pod."""


@dataclass(frozen=True, slots=True)
class NodeObserved:
    at_s: float
    observation: NodeObservation
    deadline: str = ""
    """The deadline that the notice watcher wrote on the node, if any."""


@dataclass(frozen=True, slots=True)
class NodeVanished:
    at_s: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeRead:
    """Answers ReadNode."""

    at_s: float
    node: str
    uids: tuple[str, ...]
    created_at: datetime | None
    """When the current machine of this name joined; None if there is none."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All existing nodes and pods were observed."""

    at_s: float


@dataclass(frozen=True, slots=True)
class PodCreated:
    """Answers CreatePod."""

    at_s: float
    uid: str
    pod_uid: str
    """Empty if the pod existed already."""


@dataclass(frozen=True, slots=True)
class CreateStopped:
    """Answers CreatePod after StopCreating. The pod may exist."""

    at_s: float
    uid: str


@dataclass(frozen=True, slots=True)
class CreateRefused:
    """Answers CreatePod."""

    at_s: float
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class DeleteAnswered:
    """Answers DeletePod: accepted, refused, or not answered in time."""

    at_s: float
    uid: str
    missing: bool = False
    """There is no such pod."""


PodEvent = (
    Ticked
    | StartRequested
    | EndRequested
    | PodSeen
    | PodVanished
    | NodeObserved
    | NodeVanished
    | NodeRead
    | Listed
    | PodCreated
    | CreateStopped
    | CreateRefused
    | DeleteAnswered
)
