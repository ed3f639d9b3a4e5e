"""Everything that can happen to a job. Each event has the receiver's monotonic time."""

from dataclasses import dataclass, field

from messages.clusters import WorkerObservation
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
    """This process decided, or woke, much later than it should: messages of workers may still be queued."""

    at_s: float


@dataclass(frozen=True, slots=True)
class WorkerSpoke:
    """A fact that a worker reported directly, except that it left."""

    at_s: float
    status: WorkerStatus
    exit: TrainerExit | None = None
    """The exit of a trainer, if that is the fact."""


@dataclass(frozen=True, slots=True)
class WorkerSaidLeft:
    at_s: float
    worker: WorkerId
    why: str
    is_unfit: bool = False
    """It lacks the GPUs that the job requires."""


@dataclass(frozen=True, slots=True)
class WorkerNoticeCame:
    at_s: float
    worker: WorkerId
    remaining_s: float
    source: str


@dataclass(frozen=True, slots=True)
class ClusterReported:
    """A report of a cluster's controller: what changed there for this job."""

    at_s: float
    cluster: ClusterName
    incarnation: str
    """New at each start of the controller."""
    keeps: int = 0
    """How many workers it keeps for the job, by command."""
    step: int = 0
    """The newest step that one of them completed."""
    observations: tuple[WorkerObservation, ...] = ()
    forgotten: tuple[WorkerId, ...] = ()
    """Workers that it no longer lists."""
    is_whole: bool = False
    """The cluster has no workers of the job other than those in `observations`."""


@dataclass(frozen=True, slots=True)
class ClusterAnswered:
    """The answer of a cluster to a command. What the cluster did is in its reports."""

    at_s: float
    cluster: ClusterName
    refusal: str
    """Empty if it accepted the command."""


@dataclass(frozen=True, slots=True)
class PlacementChanged:
    """A placement: where the allocator wants the job's workers, and why they may be too few."""

    at_s: float
    want: int
    """Number of the request that it answers; ignored if there is a newer request."""
    workers: dict[ClusterName, int] | None
    """None while the allocator has not listed the pools: each cluster keeps its number of workers."""
    shortage: str = ""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes that the allocator wants to remove, by cluster."""
    at_once: bool = False
    """They leave even if too few are left to train: no replacement can come before they are gone."""


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
    """The process of this job's stores is gone."""

    at_s: float


@dataclass(frozen=True, slots=True)
class RanksWaited:
    """Some ranks have waited at the store for others for longer than `meet_s`."""

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
    """The stored record is gone: a person deleted it, or the bus lost it."""

    at_s: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A person asked to stop the job. A second request with a shorter grace period ends it sooner."""

    at_s: float
    why: str
    grace_s: float | None = None
    """Seconds from SIGTERM to SIGKILL of its trainers."""


@dataclass(frozen=True, slots=True)
class ReloadAsked:
    """A person asked to replace workers that run old code."""

    at_s: float


@dataclass(frozen=True, slots=True)
class ScaleAsked:
    at_s: float
    workers: int


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """The budget is spent, except what it costs to delete the machines."""

    at_s: float
    action: WhenSpent
    why: str
    judged: Record
    """The record that the budget judged; if a person has changed its limits since, the event has no effect."""
    grace_s: float | None = None
    """Seconds from SIGTERM to SIGKILL of its trainers, if they must end."""


@dataclass(frozen=True, slots=True)
class BudgetFreed:
    """The budget again allows what `action` took away."""

    at_s: float
    action: WhenSpent


@dataclass(frozen=True, slots=True)
class BudgetRaised:
    at_s: float
    usd: float
    """The new total."""


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
