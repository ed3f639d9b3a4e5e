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
from messages.clusters import NodeObservation
from messages.ids import ClusterName


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


@dataclass(frozen=True, slots=True)
class NodesWanted:
    """What the job wants, from its core's `WantNodes`. An event with an old number is ignored."""

    at_s: float
    number: int
    nodes: int
    """For a planned job the maximum; if it is below the job's minimum (0 in a pause), all nodes are removed."""
    ended: str | None = None
    """Why the job has ended; then all of its pools are deleted."""
    criteria: Criteria | None = None
    """For a planned job: the criteria in its file, adjusted to the rest of its budget and deadline."""
    lost: frozenset[ClusterName] = frozenset()
    """Silent clusters in which the job has no worker left: their nodes count as lost."""


@dataclass(frozen=True, slots=True)
class MarketSeen:
    """The fleet offers that the job allows, with current prices and observations."""

    at_s: float
    market: Market


@dataclass(frozen=True, slots=True)
class QuotasSeen:
    """The room in quotas for a job that is not planned; a planned job gets quotas with its market."""

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
    """The answer to ListPools. Pools of other jobs are ignored."""

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
    """Whether a cluster is ready, as reported by the fleet keeper. It arrives without a listing."""

    at_s: float
    cluster: ClusterName
    waits_for: str = ""
    """Why the cluster is not ready; empty if it is."""


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """The nodes of a whole cluster, newer than the last. Sent with each report, changed or not."""

    at_s: float
    cluster: ClusterName
    nodes: tuple[NodeObservation, ...]
    free: tuple[str, ...] | None = None
    """All nodes of this cluster that the job does not use; None if that is not known."""


@dataclass(frozen=True, slots=True)
class StartsSeen:
    """How the job's workers start in a cluster. Sent with each report once some could not start there."""

    at_s: float
    cluster: ClusterName
    failing: tuple[tuple[str, float], ...] = ()
    """Names of nodes on which a worker cannot start, each with the seconds since it first failed."""
    started: frozenset[str] = frozenset()
    """Names of nodes on which a worker has started."""
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ControllerFailed:
    """The controller of a cluster cannot start, so no worker can. Repeated while this lasts."""

    at_s: float
    cluster: ClusterName
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class UseSeen:
    """The recent use of all nodes that have reports."""

    at_s: float
    use: tuple[NodeUse, ...]


@dataclass(frozen=True, slots=True)
class ProfileMeasured:
    """The measured profile of the job's steps; sent when it changed by more than noise."""

    at_s: float
    profile: Profile


@dataclass(frozen=True, slots=True)
class MachinesGivenBack:
    """Another job gave machines back: a kind that was refused may be available now."""

    at_s: float
    stock: MachineKind


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """The end of an operation: the cloud's answer, or Unreachable. Each operation gets one."""

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
