"""Everything the allocator may ask of the master's shell. Operations come back as OperationEnded with their number."""

from dataclasses import dataclass, field

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import PoolPlan, PoolRef
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Present
from controlplane.throughput.profile import Profile
from messages.ids import ClusterName
from messages.jobs import Scalar


@dataclass(frozen=True, slots=True)
class CreatePool:
    operation: int
    cluster: ClusterName
    plan: PoolPlan
    """Without what only the fleet knows: disk, taints, tags, service account."""
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
    """These very nodes; the pool's target shrinks with them."""

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
    """Comes back as PoolsListed or ListingFailed with its number."""

    listing: int
    why: str


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Comes back as Planned with its number, some time: the solver is too slow to be waited for."""

    number: int
    criteria: Criteria
    profile: Profile
    market: Market
    present: Present


@dataclass(frozen=True, slots=True)
class Place:
    """Where the job's workers are to be. The job hears it as PlacementChanged."""

    want: int
    """Number of the newest want that it answers."""
    workers: dict[ClusterName, int] | None = None
    """By cluster. None before the first listing: what each cluster keeps now is not known to be wrong."""
    shortage: str = ""
    """Why they may be too few; empty where nothing is in the way."""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes that the job should leave, by cluster: another may have a node of the same name."""
    at_once: bool = False
    """Also if too few are left to train: nothing can come before they are gone."""


@dataclass(frozen=True, slots=True)
class FollowMarket:
    """Prices and quotas are to be told of what these criteria allow from now on."""

    criteria: Criteria


@dataclass(frozen=True, slots=True)
class ShareStock:
    """Machines of this kind went back to the cloud. Allocators of other jobs hear it as MachinesGivenBack."""

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
