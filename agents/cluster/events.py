"""Everything that can happen to a cluster-controller."""

from dataclasses import dataclass

from messages.clusters import KeepWorkers, NodeObservation, RemoveWorkers, StartFailure
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
    """The number by which the shell finds the request to answer."""


@dataclass(frozen=True, slots=True)
class RemoveAsked:
    at_s: float
    remove: RemoveWorkers
    epoch: Epoch | None
    ask: int = 0


@dataclass(frozen=True, slots=True)
class WholeAsked:
    """A master requests the whole state, because it is new or missed a report."""

    at_s: float


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """The lease key has this revision. No master has a higher epoch."""

    at_s: float
    claim: Epoch


@dataclass(frozen=True, slots=True)
class PlaceStarted:
    """A place was started, or found alive after a restart of the controller."""

    at_s: float
    uid: str
    pid: int
    birth: str = ""
    job: JobName | None = None
    """The job, if the place itself names it. The controller then takes over even a place that it does not remember."""


@dataclass(frozen=True, slots=True)
class PlaceSeen:
    """The state of a place that Kubernetes manages."""

    at_s: float
    uid: str
    node: str
    mute: bool = False
    """The worker cannot send anything yet, for example because it has no machine or no image."""
    waits_for: str = ""
    notice_s: float | None = None
    """Seconds until somebody else ends the place."""
    failure: StartFailure | None = None
    """Why the place cannot start, if known. The core counts the failure's age."""


@dataclass(frozen=True, slots=True)
class PlaceFailed:
    """A place could not be started; nothing of it runs."""

    at_s: float
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """Proof that the worker is gone. Processes that its agent started may still be ending."""

    at_s: float
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class PlaceEnded:
    """Proof that nothing of the place is left."""

    at_s: float
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    at_s: float
    observation: NodeObservation


@dataclass(frozen=True, slots=True)
class NodeGone:
    at_s: float
    node: str


@dataclass(frozen=True, slots=True)
class ViewSynced:
    """All existing nodes and places were observed."""

    at_s: float


@dataclass(frozen=True, slots=True)
class KnownSaved:
    """The record was saved. Each SaveKnown gets one answer: this event or SaveFailed."""

    at_s: float


@dataclass(frozen=True, slots=True)
class KnownLost:
    """Somebody deleted or purged the saved record."""

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
