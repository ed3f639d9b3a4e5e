"""Everything that can happen to a cluster-controller."""

from dataclasses import dataclass

from messages.clusters import KeepWorkers, RemoveWorkers
from messages.ids import Epoch, WorkerId
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
class PlaceStarted:
    """It was started, or found alive after a restart of the controller."""

    at_s: float
    uid: str
    pid: int
    birth: str = ""


@dataclass(frozen=True, slots=True)
class PlaceFailed:
    """Nothing was started."""

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
class KnownSaved:
    """Each SaveKnown is answered once, by this or by SaveFailed."""

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
    | PlaceStarted
    | PlaceFailed
    | PlaceEnded
    | KnownSaved
    | SaveFailed
    | BusLost
    | BusBack
    | StopAsked
)
