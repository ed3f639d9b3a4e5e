"""Everything that can happen to a cluster-controller."""

from dataclasses import dataclass

from messages.clusters import KeepWorkers, NodeSight, RemoveWorkers, StartFailure
from messages.ids import Epoch, JobName, WorkerId
from messages.workers import WorkerStatus


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


@dataclass(frozen=True, slots=True)
class WorkerHeard:
    at_s: float
    status: WorkerStatus


@dataclass(frozen=True, slots=True)
class WorkerSaidLeft:
    at_s: float
    worker: WorkerId
    why: str


@dataclass(frozen=True, slots=True)
class KeepAsked:
    at_s: float
    keep: KeepWorkers
    epoch: Epoch | None
    ask: int = 0
    """By which the shell finds who waits for the answer."""


@dataclass(frozen=True, slots=True)
class RemoveAsked:
    at_s: float
    remove: RemoveWorkers
    epoch: Epoch | None
    ask: int = 0


@dataclass(frozen=True, slots=True)
class WholeAsked:
    """A master misses a report, or is new."""

    at_s: float


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """The key that says who leads, at this revision: no master has a higher epoch."""

    at_s: float
    claim: Epoch


@dataclass(frozen=True, slots=True)
class PlaceStarted:
    """It was started, or found alive after a restart of the controller."""

    at_s: float
    uid: str
    pid: int
    birth: str = ""
    job: JobName | None = None
    """Where the place itself tells whose it is: then also one that nobody remembers is taken over."""


@dataclass(frozen=True, slots=True)
class PlaceSeen:
    """How a place is doing that others than we keep alive."""

    at_s: float
    uid: str
    node: str
    mute: bool = False
    """Its worker cannot speak yet: there is no machine for it, or no image."""
    waits_for: str = ""
    notice_s: float | None = None
    """Somebody else ends it, in so many seconds."""
    failure: StartFailure | None = None
    """Why it cannot start, if that is known; its age is counted by the core."""


@dataclass(frozen=True, slots=True)
class PlaceFailed:
    """Nothing was started."""

    at_s: float
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """Proof that its worker is gone; what the agent had started may still be on its way out."""

    at_s: float
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class PlaceEnded:
    """Proof: nothing of it is left."""

    at_s: float
    uid: str
    why: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    at_s: float
    sight: NodeSight


@dataclass(frozen=True, slots=True)
class NodeGone:
    at_s: float
    node: str


@dataclass(frozen=True, slots=True)
class ViewSynced:
    """All nodes and all places that exist were seen."""

    at_s: float


@dataclass(frozen=True, slots=True)
class KnownSaved:
    """Each SaveKnown is answered once, by this or by SaveFailed."""

    at_s: float


@dataclass(frozen=True, slots=True)
class KnownLost:
    """What was saved is no longer there: somebody deleted or purged it."""

    at_s: float


@dataclass(frozen=True, slots=True)
class SaveFailed:
    at_s: float
    why: str


@dataclass(frozen=True, slots=True)
class BusLost:
    at_s: float


@dataclass(frozen=True, slots=True)
class BusBack:
    at_s: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """End every place that was started here, and start none."""

    at_s: float
    why: str


ClusterEvent = (
    Ticked
    | WorkerHeard
    | WorkerSaidLeft
    | KeepAsked
    | RemoveAsked
    | WholeAsked
    | LeaderSeen
    | PlaceStarted
    | PlaceSeen
    | PlaceFailed
    | AgentEnded
    | PlaceEnded
    | NodeSeen
    | NodeGone
    | ViewSynced
    | KnownSaved
    | KnownLost
    | SaveFailed
    | BusLost
    | BusBack
    | StopAsked
)
