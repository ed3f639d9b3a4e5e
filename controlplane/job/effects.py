"""Effects that a job core requests from the master's shell."""

from dataclasses import dataclass, field

from controlplane.job.state import Want
from messages.clusters import KeepWorkers, RemoveWorkers
from messages.ids import ClusterName, Generation, WorkerId
from messages.jobs import Scalar
from messages.records import Record
from messages.worlds import JobCommand


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """Saves the record. Slow: the result is RecordSaved or SaveFailed."""

    record: Record


@dataclass(frozen=True, slots=True)
class StartStore:
    """Starts a store and drops those of older generations. Slow: the result is StoreStarted or StoreFailed."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class StopStores:
    """Stops all stores of the job."""


@dataclass(frozen=True, slots=True)
class WatchStore:
    """Watches a store. Posts RanksMet when all ranks have come, RanksWaited if some wait longer than `meet_s`."""

    generation: Generation
    world_size: int
    meet_s: float


@dataclass(frozen=True, slots=True)
class Publish:
    """Publishes a message to all workers of the job, or only to those in `to`."""

    message: JobCommand
    to: tuple[tuple[ClusterName, WorkerId], ...] = ()


@dataclass(frozen=True, slots=True)
class TellCluster:
    """Sends a command to a cluster. Its reports show that the command arrived, so a lost answer does no harm."""

    cluster: ClusterName
    command: KeepWorkers | RemoveWorkers


@dataclass(frozen=True, slots=True)
class WantNodes:
    """Sends the request for nodes to the job's allocator, whose placements name its number."""

    want: Want


@dataclass(frozen=True, slots=True)
class Announce:
    """Publishes an event for people."""

    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)


JobEffect = SaveRecord | StartStore | StopStores | WatchStore | Publish | TellCluster | WantNodes | Announce
