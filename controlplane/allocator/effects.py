"""Everything the allocator may ask of its shell. Each operation ends with an OperationEnded that has its number."""

from dataclasses import dataclass, field

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import PoolPlan, PoolRef
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market
from controlplane.throughput.profile import Profile
from messages.ids import ClusterName
from messages.jobs import Scalar


@dataclass(frozen=True, slots=True)
class CreatePool:
    operation: int
    cluster: ClusterName
    plan: PoolPlan
    """The shell adds disk, taints, tags and service account from the fleet file."""
    why: str

    @property
    def ref(self) -> PoolRef:
        return PoolRef(self.cluster, self.plan.name)


@dataclass(frozen=True, slots=True)
class ResizePool:
    operation: int
    ref: PoolRef
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Remove nodes by name, and lower the pool's target by their number."""

    operation: int
    ref: PoolRef
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DeletePool:
    operation: int
    ref: PoolRef
    why: str


@dataclass(frozen=True, slots=True)
class ListPools:
    """Ends with a PoolsListed or ListingFailed that has its number."""

    listing: int
    why: str


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Ends with a Planned that has its number. The allocator does not wait, because the solver is slow."""

    number: int
    criteria: Criteria
    profile: Profile
    market: Market
    current: CurrentCapacity


@dataclass(frozen=True, slots=True)
class Place:
    """Where the job's workers should be. The job gets it as PlacementChanged."""

    want: int
    """Number of the newest want that this answers."""
    workers: dict[ClusterName, int] | None = None
    """Number of workers by cluster. None before the first listing: clusters keep the workers that they have."""
    shortage: str = ""
    """Why the job may get too few workers; empty if nothing is in the way."""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes that the job should leave, by cluster; two clusters may have nodes of the same name."""
    at_once: bool = False
    """Leave even if too few nodes remain to train: no replacement can come before these nodes are gone."""


@dataclass(frozen=True, slots=True)
class FollowMarket:
    """From now on, send the allocator the prices and quotas of what these criteria allow."""

    criteria: Criteria


@dataclass(frozen=True, slots=True)
class ShareStock:
    """Machines of this kind went back to the cloud. Allocators of other jobs get it as MachinesGivenBack."""

    kind: MachineKind


@dataclass(frozen=True, slots=True)
class Announce:
    """An event for people."""

    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)


Change = CreatePool | ResizePool | RemoveNodes | DeletePool
AllocatorEffect = Change | ListPools | MakePlan | Place | FollowMarket | ShareStock | Announce
