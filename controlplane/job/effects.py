"""Everything a job may ask of the master's shell."""

from dataclasses import dataclass, field

from controlplane.job.state import Want
from messages.clusters import KeepWorkers, RemoveWorkers
from messages.ids import ClusterName, Generation, WorkerId
from messages.jobs import Scalar
from messages.records import Record
from messages.worlds import JobCommand


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """Slow: comes back as RecordSaved or SaveFailed."""

    record: Record


@dataclass(frozen=True, slots=True)
class StartStore:
    """Slow: comes back as StoreStarted or StoreFailed. Stores of older generations are dropped."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class StopStores:
    """The job needs no store any more."""


@dataclass(frozen=True, slots=True)
class WatchStore:
    """Tell with RanksMet when all ranks of this world have come, with RanksWaited if some wait longer than `meet_s`."""

    generation: Generation
    world_size: int
    meet_s: float


@dataclass(frozen=True, slots=True)
class Publish:
    """To all workers of the job, or only to those in `to`."""

    message: JobCommand
    to: tuple[tuple[ClusterName, WorkerId], ...] = ()


@dataclass(frozen=True, slots=True)
class TellCluster:
    """A command; that it arrived is learned from the cluster's topology, so a lost answer does no harm."""

    cluster: ClusterName
    command: KeepWorkers | RemoveWorkers


@dataclass(frozen=True, slots=True)
class WantNodes:
    """The job's allocator hears it as NodesWanted and answers with placements that name its number."""

    want: Want


@dataclass(frozen=True, slots=True)
class Announce:
    """An event for people."""

    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)


JobEffect = SaveRecord | StartStore | StopStores | WatchStore | Publish | TellCluster | WantNodes | Announce
