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
class WantedChanged:
    """Of a planned job it is the most; fewer than it needs at least (a pause: none) give all nodes up."""

    at_s: float
    wanted: int
    why: str = ""


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
class CriteriaChanged:
    """A budget that forbids machines on demand, or what is left of a deadline."""

    at_s: float
    criteria: Criteria


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
class ClusterBecameReady:
    """So its maker says; whoever waits for it need not wait for the next listing."""

    at_s: float
    cluster: ClusterName


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """A topology of a cluster, whole and newer than the one before: told each time that one comes, changed or not."""

    at_s: float
    cluster: ClusterName
    nodes: tuple[NodeSight, ...]


@dataclass(frozen=True, slots=True)
class ClusterLost:
    """Nothing is heard of it, nor of anybody there: its nodes are of no more use. Told again while it is so."""

    at_s: float
    cluster: ClusterName
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodesReleased:
    """All nodes of this cluster on which the job has nothing and wants nothing; whoever is not named is in use."""

    at_s: float
    cluster: ClusterName
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartsSeen:
    """How the job's workers start in a cluster, while some cannot, and until the cluster is known to work again."""

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


@dataclass(frozen=True, slots=True)
class JobEnded:
    at_s: float
    why: str


AllocatorEvent = (
    Ticked
    | WantedChanged
    | MarketSeen
    | QuotasSeen
    | CriteriaChanged
    | Planned
    | PoolsListed
    | ListingFailed
    | ClusterBecameReady
    | NodesSeen
    | ClusterLost
    | NodesReleased
    | StartsSeen
    | ControllerFailed
    | UseSeen
    | ProfileMeasured
    | MachinesGivenBack
    | OperationEnded
    | JobEnded
)
