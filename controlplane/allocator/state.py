"""What the allocator knows of one job's pools. Nothing is saved: a new master learns it from the first reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.allocator.demand import Basis, Demand
from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.settings import AllocatorSettings
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import PoolRef
from controlplane.planning.market import UNLIMITED, Market, Nodes, Quotas
from controlplane.planning.plan import Change, Plan
from messages.ids import ClusterName, JobName
from runtime.errors import UserError


@dataclass(frozen=True, slots=True)
class Node:
    """A machine as its cluster reports it. Another machine may get its name, but not its uid."""

    name: str
    uid: str
    first_seen_s: float
    ready: bool = False
    was_ready: bool = False
    unready_s: float | None = None
    """When it became unready."""
    notice_until_s: float | None = None
    """End of its notice: until then it stays, because its worker hands over."""
    cordoned: bool = False
    """It is being drained from outside, for an upgrade or a repair."""
    sidelined_s: float | None = None
    """When it was replaced but kept, because it may recover: it is not ready, or cordoned."""
    lost_s: float | None = None
    abandoned: bool = False
    """It filled a slot that is being removed: it is removed with the slot, unless that fails."""
    useless: str = ""
    """Why it is removed although it was not preempted; then it counts as lost."""
    dismissed: str = ""
    """Why it will be removed although the job uses it: it is removed when the job has left it."""

    @property
    def is_sound(self) -> bool:
        """Neither lost nor noticed."""
        return self.notice_until_s is None and self.lost_s is None

    @property
    def counts(self) -> bool:
        return self.is_sound and not self.dismissed and self.sidelined_s is None


class Kind(StrEnum):
    CREATE = "create"
    RESIZE = "resize"
    REMOVE = "remove"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Operation:
    number: int
    kind: Kind
    before: int
    target: int
    """The pool's target after the operation; `before` is the one at its request."""
    asked_s: float
    nodes: frozenset[str] = frozenset()
    """Nodes that are removed by name."""
    vacant: frozenset[str] = frozenset()
    """Vacant slots that are removed or requested again."""

    @property
    def raises(self) -> bool:
        return self.target > self.before


@dataclass(frozen=True, slots=True)
class Doubt:
    """The outcome of an operation is not known; the pool is not changed until a listing shows it."""

    target: int
    """The highest target that the pool may have."""
    why: str
    listing: int
    settles_s: float
    """Only a listing after number `listing`, requested at `settles_s` or later, shows the outcome."""
    done: bool = False
    """The cloud reported success, but it may have removed fewer nodes than requested."""


@dataclass(frozen=True, slots=True)
class Pool:
    ref: PoolRef
    offer: Offer
    target: int = 0
    """The known target in the cloud, which re-creates preempted nodes up to it."""
    exists: bool = False
    adopted: bool = False
    """Found in a listing: its creation and nodes were not observed."""
    stopping: bool = False
    updating: bool = False
    """The cloud upgrades or repairs its nodes and may add extra ones: the pool is not changed meanwhile."""
    resizing: bool = False
    """The cloud may still work on our resize, whose outcome is known: it looks like an upgrade."""
    broken: bool = False
    operation: Operation | None = None
    doubt: Doubt | None = None
    touched: int = 0
    """The newest listing when an operation was last requested or ended: it and earlier ones are too old."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """Reported nodes by name, lost ones too while they are reported."""
    vacant: dict[str, float] = field(default_factory=dict)
    """Names of nodes that disappeared, and when: the cloud still tries to refill their slots."""
    written_off: frozenset[str] = frozenset()
    """Lost nodes whose slots could not be removed for `owed_s`: they no longer count."""
    removed: frozenset[tuple[str, str]] = frozenset()
    """Name and uid of removed nodes that may still be reported for a moment; without uid, any node of the name."""
    dead: tuple[str, ...] = ()
    """Uids of lost machines: a late observation does not revive them."""
    hanging_s: float | None = None
    """When the wait for an operation ended that continues: the cloud still tries and refuses a lower target."""
    abandoned: bool = False
    """It has hung for `hang_s`: its empty slots no longer count."""
    granted: bool = False
    """The cloud granted some of the requested nodes and refused the rest: the granted ones will come."""
    sighted_s: float | None = None
    filled_s: float | None = None
    """When the cloud last reported that all requested nodes exist: older observations do not show them."""
    empty_since_s: float | None = None
    failures: int = 0
    retry_s: float | None = None
    last_error: str = ""
    requests_fewer: bool = False
    """A quota refused its last request but has room for fewer nodes; those are requested once."""


class Shortage(StrEnum):
    STOCKOUT = "stockout"
    QUOTA = "quota"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Closure:
    """A pause in requests after a shortage of one kind."""

    shortage: Shortage
    at_s: float
    """When the cloud last refused."""
    until_s: float
    failures: int = 0
    """In a row."""
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """What is remembered of one kind of machine."""

    closures: tuple[Closure, ...] = ()
    """One for each kind of shortage: each has its own pauses."""
    cooldown_until_s: float | None = None
    """End of the cooldown after a preempted node or a missing answer: until then it comes last."""

    @property
    def closed(self) -> Closure | None:
        """The closure that ends last."""
        return max(self.closures, key=lambda closure: closure.until_s, default=None)

    @property
    def closed_until_s(self) -> float | None:
        return self.closed.until_s if self.closed is not None else None

    @property
    def short_s(self) -> float | None:
        """When the cloud last refused a machine of this kind."""
        return max((closure.at_s for closure in self.closures), default=None)


@dataclass(frozen=True, slots=True)
class Block:
    """The job's workers cannot start in a cluster."""

    since_s: float
    until_s: float
    """End of the pause in requests; counts from the last report of a worker that cannot start."""
    failures: int
    """How often the cluster was tried."""
    detail: str
    hint: str = ""
    nodes: frozenset[str] = frozenset()
    """Names of the nodes of the last try."""
    of_controller: bool = False
    """The cluster's controller cannot start; the block ends when the controller reports."""


@dataclass(frozen=True, slots=True)
class LowUse:
    """A node on which the job computes too little: the share of its time of computing and waiting for others."""

    since_s: float
    at_s: float
    """`since_s` and `at_s`: the first and the last report of low use without a break or a long silence."""
    share: float


@dataclass(frozen=True, slots=True)
class Cutback:
    """A cap on nodes after unused ones were removed."""

    nodes: int | None
    """The number of nodes that were left: no more are requested before `until_s`. None after that."""
    until_s: float
    times: int
    """How often the cap ended and nodes were removed again."""


@dataclass(frozen=True, slots=True)
class Listing:
    number: int = 0
    asked_s: float | None = None
    """When the listing in progress was requested."""
    learned: int = 0
    learned_s: float | None = None
    """When the last listing that was learned, number `learned`, was requested."""
    failures: int = 0
    retry_s: float | None = None
    error: str = ""
    hint: str = ""
    unlisted_s: float | None = None
    """When the last report arrived that needs a new listing to explain it."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The newest plan of a planned job, and the plan in progress."""

    number: int = 0
    not_before_s: float | None = None
    """The first plan waits until then for measured steps: an assumed profile is no reason to move running nodes."""
    asked_s: float | None = None
    """When the last plan was requested."""
    asked: Basis | None = None
    """Inputs of the plan in progress."""
    plan: Plan | None = None
    basis: Basis | None = None
    """Inputs of the newest plan, which is followed only while they are the current facts."""
    facts: Basis | None = None
    facts_s: float = 0.0
    """When `facts`, the current inputs of a plan, last changed."""
    changing_since_s: float = 0.0
    """When the current series of changes began. In a series, each change follows the one before within
    `plan_settle_s`."""
    reported: tuple[Nodes, Change] | None = None


@dataclass(frozen=True, slots=True)
class Allocator:
    job: JobName
    offers: tuple[Offer, ...]
    """Most wanted first."""
    settings: AllocatorSettings
    wanted: int
    want: int = 0
    """Number of the newest want."""
    ended: str | None = None
    """Why the job ended; then all of its pools are deleted."""
    lost: frozenset[ClusterName] = frozenset()
    """Silent clusters in which the job has no worker left, until they report again."""
    finished: bool = False
    """The job has ended and none of its pools are left."""
    clusters: dict[ClusterName, bool] = field(default_factory=dict)
    """Existing clusters, and whether they are ready."""
    unready: dict[ClusterName, str] = field(default_factory=dict)
    """Why clusters are not ready, as reported by the fleet keeper."""
    pools: dict[PoolRef, Pool] = field(default_factory=dict)
    availability: dict[MachineKind, Availability] = field(default_factory=dict)
    blocks: dict[ClusterName, Block] = field(default_factory=dict)
    failing: dict[ClusterName, dict[str, float]] = field(default_factory=dict)
    """Names of nodes on which the job's worker cannot start, and since when."""
    released: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    deleted: dict[PoolRef, int] = field(default_factory=dict)
    """The newest listing when a pool was deleted: it and earlier ones do not bring the pool back."""
    listing: Listing = Listing()
    operations: int = 0
    unwanted_since_s: float | None = None
    """Since when the job wants no nodes."""
    quiet_since_s: float = 0.0
    """When the last operation ended or the allocator started."""
    demand: Demand | None = None
    """None for a job that is not planned."""
    market: Market | None = None
    quotas: Quotas = UNLIMITED
    """As last read, or as reported by a refusal."""
    quota_refused_s: float | None = None
    plans: Plans = Plans()
    by: str = ""
    """What sets the targets of a planned job's pools now."""
    idle_since_s: dict[ClusterName, dict[str, float]] = field(default_factory=dict)
    """Since when the job does not use a node, by cluster and name of the node."""
    low_use: dict[tuple[ClusterName, str], LowUse] = field(default_factory=dict)
    """By cluster and name of the node."""
    idle_cap: Cutback | None = None
    """After idle nodes were removed; dropped when a change may make more nodes useful."""
    cutback: Cutback | None = None
    """After nodes with low use were dismissed: changed prices, profiles and losses do not make them useful."""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes in use that the job should leave, so that they can be removed by name."""
    placed: Place | None = None
    """The placement that the job last got."""
    why: str = ""

    @property
    def synced(self) -> bool:
        """Report whether the first listing arrived; before it no pool is changed."""
        return self.listing.learned_s is not None


def new_allocator(
    job: JobName,
    offers: tuple[Offer, ...],
    *,
    wanted: int,
    at_s: float,
    want: int = 0,
    ended: str | None = None,
    settings: AllocatorSettings | None = None,
    demand: Demand | None = None,
    measured_by_s: float | None = None,
    unready: Mapping[ClusterName, str] | None = None,
) -> Allocator:
    """An allocator for a job that is new, runs or has ended; the first listing shows its pools.

    `measured_by_s`: until then the first plan waits for measured steps.
    """
    names = [pool_ref(job, offer) for offer in offers]
    for number, offer in enumerate(offers):
        if names[number] in names[:number]:
            raise UserError(
                f"{offer.machine_type} in {offer.zone} of cluster {offer.cluster} is offered twice",
                "remove one of the two from the fleet file",
            )
    return Allocator(
        job,
        offers,
        settings or AllocatorSettings(),
        wanted,
        want=want,
        ended=ended,
        unready=dict(unready or {}),
        quiet_since_s=at_s,
        demand=demand,
        plans=Plans(not_before_s=measured_by_s),
    )
