"""Everything a cluster-controller may ask its shell for."""

from dataclasses import dataclass

from agents.cluster.state import Known
from messages.clusters import ClusterHeartbeat, WorkerTemplate
from messages.ids import JobName, WorkerId


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Answered by PlaceStarted or PlaceFailed. Asked once for a uid, after the uid was saved."""

    uid: str
    job: JobName
    template: WorkerTemplate
    departing: frozenset[str] = frozenset()
    """Places that are about to end: what they use of the machine becomes free."""


@dataclass(frozen=True, slots=True)
class EndPlace:
    """Answered by PlaceEnded, also if there is nothing to end. May be asked again."""

    uid: str
    grace_s: float
    why: str
    worker: WorkerId | None = None
    """Of a place that was started by hand: only the worker itself can end it, and nobody proves that it did."""


@dataclass(frozen=True, slots=True)
class TellNotice:
    """To the master, for a worker that may not know of it yet."""

    worker: WorkerId
    job: JobName
    remaining_s: float
    source: str


@dataclass(frozen=True, slots=True)
class SendTopology:
    heartbeat: ClusterHeartbeat


@dataclass(frozen=True, slots=True)
class SaveKnown:
    """Answered by KnownSaved or SaveFailed; one at a time."""

    known: Known


ClusterEffect = StartPlace | EndPlace | TellNotice | SendTopology | SaveKnown
