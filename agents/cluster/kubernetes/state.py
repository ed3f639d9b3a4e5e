"""What is known of the pods of workers and of the nodes under them."""

from dataclasses import dataclass, field, replace

from msgspec import structs

from agents.cluster.kubernetes.observations import PodObservation
from messages.clusters import NodeSight, WorkerTemplate
from messages.ids import JobName


@dataclass(frozen=True, slots=True)
class PodRules:
    hostless_s: float = 20.0
    """Seconds that an agent may stay after its host has ended."""
    abandoned_grace_s: int = 10
    """Seconds that a host has to end its trainers when its agent is gone."""
    settle_s: float = 20.0
    """Seconds that a request to create a pod may still take before the pod is deleted."""
    delete_again_s: float = 15.0
    """Seconds after which a pod that should be gone is deleted again."""
    tombstones_at_most: int = 4000


@dataclass(frozen=True, slots=True)
class EndRequest:
    grace_s: float
    requested_at_s: float


@dataclass(frozen=True, slots=True)
class End:
    """How a place ended. Proof: nothing of it runs any more."""

    why: str
    code: int | None = None
    refused: bool = False
    """The API refused the pod: nothing was started."""


@dataclass(frozen=True, slots=True)
class Deletion:
    requested_at_s: float
    answered: bool = False
    by_controller: bool = False
    """Answers an EndRequest: then a missing pod means that the place has ended."""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """A place and the pod that is made for it, under the place's uid: creating it twice makes one pod."""

    uid: str
    template: WorkerTemplate | None = None
    """Of a pod that is to be created."""
    job: JobName | None = None
    creating: bool = False
    stop_creating: bool = False
    pod: PodObservation | None = None
    """As last seen."""
    delete_at_s: float | None = None
    """When the grace of a deleted pod is over."""
    hostless_since_s: float | None = None
    reported: PodObservation | None = None
    end_request: EndRequest | None = None
    ended_by_us: bool = False
    """Its deletion is ours, so it is no notice."""
    deletion: Deletion | None = None
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A pod object whose place has ended."""

    pod_uid: str
    deletion: Deletion | None = None


@dataclass(frozen=True, slots=True)
class KnownNode:
    sight: NodeSight
    deadline: str = ""
    reported: bool = False

    def is_as(self, other: "KnownNode") -> bool:
        """A notice that only runs down is nothing new."""
        return (_timeless(self.sight), self.deadline) == (_timeless(other.sight), other.deadline)


@dataclass(frozen=True, slots=True)
class Pods:
    rules: PodRules = PodRules()
    expected: tuple[str, ...] = ()
    """Places of an earlier controller, until all pods are listed."""
    places: dict[str, PodPlace] = field(default_factory=dict)
    leftovers: dict[str, Leftover] = field(default_factory=dict)
    tombstones: dict[str, None] = field(default_factory=dict)
    """Uids whose end was reported, oldest first."""
    nodes: dict[str, KnownNode] = field(default_factory=dict)
    vanished_nodes: tuple[str, ...] = ()
    """To be reported."""
    nodes_to_read: tuple[str, ...] = ()
    """Nodes that are gone: the next machine of the same name may be there already."""
    synced: bool = False
    synced_reported: bool = False

    def with_place(self, place: PodPlace) -> "Pods":
        return replace(self, places={**self.places, place.uid: place})

    def without_leftover(self, uid: str) -> "Pods":
        return replace(self, leftovers={other: left for other, left in self.leftovers.items() if other != uid})

    def is_ready(self, node: str) -> bool:
        known = self.nodes.get(node)
        return known is not None and known.sight.ready


def _timeless(sight: NodeSight) -> NodeSight:
    return structs.replace(sight, notice_s=None if sight.notice_s is None else 0.0)
