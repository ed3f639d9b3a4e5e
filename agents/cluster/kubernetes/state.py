"""State of the core of pods: the pods of workers, and their nodes."""

from dataclasses import dataclass, field, replace

from msgspec import structs

from agents.cluster.kubernetes.observations import PodObservation
from messages.clusters import NodeObservation, WorkerTemplate
from messages.ids import JobName


@dataclass(frozen=True, slots=True)
class PodRules:
    hostless_s: float = 20.0
    """Seconds that an agent may run after its host has ended."""
    abandoned_grace_s: int = 10
    """Seconds that a host has to end its trainers after its agent has ended."""
    settle_s: float = 20.0
    """Seconds that a request to create a pod may still take before the pod is deleted."""
    delete_again_s: float = 15.0
    """Seconds after which the deletion of a pod is repeated."""
    tombstones_at_most: int = 4000


@dataclass(frozen=True, slots=True)
class EndRequest:
    grace_s: float
    requested_at_s: float


@dataclass(frozen=True, slots=True)
class End:
    """How a place ended. Proof that nothing of it runs."""

    why: str
    refused: bool = False
    """The API refused the pod: nothing was started."""


@dataclass(frozen=True, slots=True)
class Deletion:
    requested_at_s: float
    answered: bool = False
    by_controller: bool = False
    """True if it follows an EndRequest: then a missing pod means that the place has ended."""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """A place and its pod. The pod's name is the place's uid, so two requests create one pod."""

    uid: str
    template: WorkerTemplate | None = None
    """The template of a pod that must be created."""
    job: JobName | None = None
    creating: bool = False
    stop_creating: bool = False
    pod: PodObservation | None = None
    """The last observation."""
    delete_at_s: float | None = None
    """When the grace of a deleted pod is over."""
    hostless_since_s: float | None = None
    reported: PodObservation | None = None
    end_request: EndRequest | None = None
    ended_by_us: bool = False
    """True if this controller deleted the pod, so that its deletion is not a notice."""
    deletion: Deletion | None = None
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A pod object whose place has ended."""

    pod_uid: str
    deletion: Deletion | None = None


@dataclass(frozen=True, slots=True)
class KnownNode:
    observation: NodeObservation
    deadline: str = ""
    reported: bool = False

    def is_as(self, other: "KnownNode") -> bool:
        """Compares two nodes; the seconds that are left of a notice do not count."""
        return (_timeless(self.observation), self.deadline) == (_timeless(other.observation), other.deadline)


@dataclass(frozen=True, slots=True)
class Pods:
    rules: PodRules = PodRules()
    expected: tuple[str, ...] = ()
    """Uids of an earlier controller's places, until all pods are listed."""
    places: dict[str, PodPlace] = field(default_factory=dict)
    leftovers: dict[str, Leftover] = field(default_factory=dict)
    tombstones: dict[str, None] = field(default_factory=dict)
    """Uids whose end was reported, oldest first."""
    nodes: dict[str, KnownNode] = field(default_factory=dict)
    vanished_nodes: tuple[str, ...] = ()
    """Nodes whose end must be reported."""
    nodes_to_read: tuple[str, ...] = ()
    """Nodes that are gone. A new machine of the same name may already exist."""
    synced: bool = False
    synced_reported: bool = False

    def with_place(self, place: PodPlace) -> "Pods":
        return replace(self, places={**self.places, place.uid: place})

    def without_leftover(self, uid: str) -> "Pods":
        return replace(self, leftovers={other: left for other, left in self.leftovers.items() if other != uid})

    def is_ready(self, node: str) -> bool:
        known = self.nodes.get(node)
        return known is not None and known.observation.ready


def _timeless(observation: NodeObservation) -> NodeObservation:
    return structs.replace(observation, notice_s=None if observation.notice_s is None else 0.0)
