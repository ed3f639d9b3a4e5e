"""Everything that the cluster-controller's core may request from its shell."""

from dataclasses import dataclass

from agents.cluster.state import Known
from messages.clusters import ClusterHeartbeat, WorkerTemplate
from messages.ids import JobName, WorkerId


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Starts a place; PlaceStarted or PlaceFailed answers. Requested once for each uid, after the uid is saved."""

    uid: str
    job: JobName
    template: WorkerTemplate
    departing: frozenset[str] = frozenset()
    """Uids of places that are about to end and will free their part of the machine."""


@dataclass(frozen=True, slots=True)
class EndPlace:
    """Ends a place; PlaceEnded answers, even if there is nothing to end. May be repeated."""

    uid: str
    grace_s: float
    why: str
    worker: WorkerId | None = None
    """The worker of a place that was started by hand. Only the worker can end it, and nothing proves that it did."""


@dataclass(frozen=True, slots=True)
class TellNotice:
    """Sends a notice to the master for a worker that may not know it yet."""

    worker: WorkerId
    job: JobName
    remaining_s: float
    source: str


@dataclass(frozen=True, slots=True)
class SendTopology:
    heartbeat: ClusterHeartbeat


@dataclass(frozen=True, slots=True)
class SaveKnown:
    """Saves the record; KnownSaved or SaveFailed answers. One at a time."""

    known: Known


ClusterEffect = StartPlace | EndPlace | TellNotice | SendTopology | SaveKnown
