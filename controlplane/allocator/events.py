"""Everything that can happen to a job's capacity. Each event has the receiver's monotonic time."""

from dataclasses import dataclass

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import ClusterInfo, PoolRef
from controlplane.clouds.outcomes import Outcome, Refused, Unreachable
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Quotas
from controlplane.planning.plan import Plan
from controlplane.throughput.profile import Profile
from controlplane.throughput.use import NodeUse
from messages.clusters import NodeSight
from messages.ids import ClusterName


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


@dataclass(frozen=True, slots=True)
class NodesWanted:
    """What the job wants, as its core said with `WantNodes`. One that is not newer than the last teaches nothing."""

    at_s: float
    number: int
    nodes: int
    """Of a planned job it is the most; fewer than it needs at least (a pause: none) give all nodes up."""
    ended: str | None = None
    """Why the job has ended; then all of its pools go."""
    criteria: Criteria | None = None
    """Of a planned job: what its file asks for, within what is left of its budget and its deadline."""
    lost: frozenset[ClusterName] = frozenset()
    """Silent clusters in which the job has no worker left: their nodes are of no more use."""


@dataclass(frozen=True, slots=True)
class MarketSeen:
    """What the fleet offers of what the job allows, at the prices of the moment, with what is known of each."""

    at_s: float
    market: Market


@dataclass(frozen=True, slots=True)
class QuotasSeen:
    """What quotas leave for a job that is not planned; a planned one sees them with its market."""

    at_s: float
    quotas: Quotas


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer to MakePlan."""

    at_s: float
    number: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class PoolsListed:
    """The answer to ListPools. Pools of other jobs are passed over."""

    at_s: float
    listing: int
    clusters: tuple[ClusterInfo, ...]


@dataclass(frozen=True, slots=True)
class ListingFailed:
    at_s: float
    listing: int
    outcome: Unreachable | Refused


@dataclass(frozen=True, slots=True)
class ReadinessSeen:
    """What stands in the way of a cluster's being ready, as its keeper says; a ready one needs no listing first."""

    at_s: float
    cluster: ClusterName
    waits_for: str = ""
    """Empty: it is ready."""


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """A topology of a cluster, whole and newer than the one before: told each time that one comes, changed or not."""

    at_s: float
    cluster: ClusterName
    nodes: tuple[NodeSight, ...]
    free: tuple[str, ...] | None = None
    """All nodes of this cluster on which the job has nothing and wants nothing; None where that is not known."""


@dataclass(frozen=True, slots=True)
class StartsSeen:
    """How the job's workers start in a cluster, told with each topology once some could not start there."""

    at_s: float
    cluster: ClusterName
    failing: tuple[tuple[str, float], ...] = ()
    """Names of nodes on which a worker cannot start, for so many seconds."""
    started: frozenset[str] = frozenset()
    """Names of nodes on which a worker has started."""
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ControllerFailed:
    """The controller of a cluster cannot start, so no worker can. Told again while it is so."""

    at_s: float
    cluster: ClusterName
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class UseSeen:
    """As reported lately, of all nodes of which anything is known."""

    at_s: float
    use: tuple[NodeUse, ...]


@dataclass(frozen=True, slots=True)
class ProfileMeasured:
    """What the job's steps need, as it turned out; told when it is another by more than noise."""

    at_s: float
    profile: Profile


@dataclass(frozen=True, slots=True)
class MachinesGivenBack:
    """By another job: what was refused may be had now."""

    at_s: float
    stock: MachineKind


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """Each operation that was asked for ends, by the cloud's word or for want of it (Unreachable)."""

    at_s: float
    pool: PoolRef
    operation: int
    outcome: Outcome


AllocatorEvent = (
    Ticked
    | NodesWanted
    | MarketSeen
    | QuotasSeen
    | Planned
    | PoolsListed
    | ListingFailed
    | ReadinessSeen
    | NodesSeen
    | StartsSeen
    | ControllerFailed
    | UseSeen
    | ProfileMeasured
    | MachinesGivenBack
    | OperationEnded
)
