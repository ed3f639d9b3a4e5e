"""Everything that can happen to a job. Each event has the receiver's monotonic time."""

from dataclasses import dataclass, field

from messages.clusters import WorkerSight
from messages.criteria import WhenSpent
from messages.ids import ClusterName, Generation, Rank, WorkerId
from messages.records import Record
from messages.workers import TrainerExit, WorkerStatus
from messages.worlds import StoreAddress


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


@dataclass(frozen=True, slots=True)
class FellBehind:
    """This process decided, or woke, much later than it should have: it may not have heard yet what workers said."""

    at_s: float
    late_s: float
    """For the log."""


@dataclass(frozen=True, slots=True)
class WorkerSpoke:
    """Any fact that a worker told directly, but its leaving."""

    at_s: float
    status: WorkerStatus
    exit: TrainerExit | None = None
    """Of one of its trainers, which is the fact."""


@dataclass(frozen=True, slots=True)
class WorkerSaidLeft:
    at_s: float
    worker: WorkerId
    cluster: ClusterName
    why: str
    is_unfit: bool = False
    """It has not the GPUs that the job asks for."""


@dataclass(frozen=True, slots=True)
class WorkerNoticeCame:
    at_s: float
    worker: WorkerId
    remaining_s: float
    source: str


@dataclass(frozen=True, slots=True)
class ClusterReported:
    """The controller of a cluster was heard, and what changed there for this job."""

    at_s: float
    cluster: ClusterName
    incarnation: str
    """New at each start of the controller."""
    keeps: int = 0
    """How many workers it was told to keep for the job."""
    step: int = 0
    """The step that one of them has completed."""
    sights: tuple[WorkerSight, ...] = ()
    forgotten: tuple[WorkerId, ...] = ()
    """Workers that it no longer lists."""
    is_whole: bool = False
    """Workers that are not among the sights are not listed."""


@dataclass(frozen=True, slots=True)
class ClusterAnswered:
    """To a command: refused for a reason, or taken if there is none. What it did is in its topology."""

    at_s: float
    cluster: ClusterName
    refusal: str


@dataclass(frozen=True, slots=True)
class PlacementChanged:
    """Where the allocator wants the job's workers, and why they may be too few."""

    at_s: float
    want: int
    """Number of the want that it answers: if there is a newer one, it teaches nothing."""
    workers: dict[ClusterName, int] | None
    """None while the allocator does not know what there is: each cluster keeps what it keeps."""
    shortage: str = ""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes that it wants to be free, by cluster."""
    at_once: bool = False
    """Also if too few are left to train: nothing can come before they are gone."""


@dataclass(frozen=True, slots=True)
class StoreStarted:
    at_s: float
    generation: Generation
    address: StoreAddress


@dataclass(frozen=True, slots=True)
class StoreFailed:
    at_s: float
    generation: Generation
    why: str


@dataclass(frozen=True, slots=True)
class StoreLost:
    """The process that served this job's stores is gone."""

    at_s: float


@dataclass(frozen=True, slots=True)
class RanksWaited:
    """Some ranks have been waiting at the store for others for longer than `meet_s`."""

    at_s: float
    generation: Generation
    waiting: tuple[Rank, ...]
    missing: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class RanksMet:
    """All ranks of the generation have come to its store."""

    at_s: float
    generation: Generation


@dataclass(frozen=True, slots=True)
class RecordSaved:
    at_s: float
    record: Record


@dataclass(frozen=True, slots=True)
class SaveFailed:
    at_s: float
    why: str


@dataclass(frozen=True, slots=True)
class RecordLost:
    """The stored record is no longer there: somebody deleted it, or the bus lost it."""

    at_s: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Asked again with less grace, the job ends sooner."""

    at_s: float
    why: str
    grace_s: float | None = None
    """From SIGTERM to SIGKILL of its trainers."""


@dataclass(frozen=True, slots=True)
class ReloadAsked:
    """The code may be another than when the workers began."""

    at_s: float


@dataclass(frozen=True, slots=True)
class ScaleAsked:
    at_s: float
    workers: int


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """What is left is needed to give machines back."""

    at_s: float
    action: WhenSpent
    why: str
    judged: Record
    """If a person has changed since what it may have, this teaches nothing: it is judged again in a moment."""
    grace_s: float | None = None
    """From SIGTERM to SIGKILL of its trainers, if they have to end."""


@dataclass(frozen=True, slots=True)
class BudgetFreed:
    """There is budget again for what was no longer allowed."""

    at_s: float
    action: WhenSpent
    why: str


@dataclass(frozen=True, slots=True)
class BudgetRaised:
    at_s: float
    usd: float
    """In all."""


JobEvent = (
    Ticked
    | FellBehind
    | WorkerSpoke
    | WorkerSaidLeft
    | WorkerNoticeCame
    | ClusterReported
    | ClusterAnswered
    | PlacementChanged
    | StoreStarted
    | StoreFailed
    | StoreLost
    | RanksWaited
    | RanksMet
    | RecordSaved
    | SaveFailed
    | RecordLost
    | StopAsked
    | ReloadAsked
    | ScaleAsked
    | BudgetReached
    | BudgetFreed
    | BudgetRaised
)
