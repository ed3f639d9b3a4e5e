"""What the allocator knows of one job's pools. Nothing of it is saved: the first listing and sights teach it anew."""

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
    """A machine as its cluster sees it. Its name comes back with another machine, its uid does not."""

    name: str
    uid: str
    first_seen_s: float
    ready: bool = False
    was_ready: bool = False
    unready_s: float | None = None
    """Since when it is not ready, after it was."""
    doomed_until_s: float | None = None
    """It was noticed: until then it is left alone, since its worker hands over."""
    cordoned: bool = False
    """Somebody else takes pods away from it, for an upgrade or a repair."""
    sidelined_s: float | None = None
    """Since when it is replaced but kept, because it may come back: it is not ready, or cordoned."""
    lost_s: float | None = None
    given_up: bool = False
    """It came to a slot that is being given up: it is lost with it, unless that fails."""
    useless: str = ""
    """Why it was given up though the cloud did not take it; then it counts as lost."""
    dismissed: str = ""
    """Why it is given up though the job uses it; it goes when the job has left it."""

    @property
    def is_sound(self) -> bool:
        """Neither lost nor about to be."""
        return self.doomed_until_s is None and self.lost_s is None

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
    """What the pool aims at when it is done; `before` is what it aimed at when it was asked."""
    asked_s: float
    nodes: frozenset[str] = frozenset()
    """Those that are removed by name."""
    vacant: frozenset[str] = frozenset()
    """The vacant slots that are given up, or asked for anew."""

    @property
    def raises(self) -> bool:
        return self.target > self.before


@dataclass(frozen=True, slots=True)
class Doubt:
    """It is not known what the cloud made of an operation; the pool is left alone until a listing tells."""

    target: int
    """The most that it may aim at."""
    why: str
    listing: int
    settles_s: float
    """Only a later listing than this, asked for no earlier than then, tells what became of it."""
    done: bool = False
    """So the cloud said; but less may have been given up than was asked."""


@dataclass(frozen=True, slots=True)
class Pool:
    ref: PoolRef
    offer: Offer
    target: int = 0
    """What the cloud is known to aim at: it re-creates what is taken, until it is told otherwise."""
    exists: bool = False
    adopted: bool = False
    """Found in a listing: who made it, and what it holds, was not seen."""
    stopping: bool = False
    updating: bool = False
    """The cloud upgrades or repairs its nodes. It may have extra ones meanwhile: nothing is removed or added."""
    resizing: bool = False
    """The cloud may still work on a resize whose outcome is known: it looks like an upgrade, but is none."""
    broken: bool = False
    operation: Operation | None = None
    doubt: Doubt | None = None
    touched: int = 0
    """The newest listing when an operation was last asked for or ended: that one and those before it are too old."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """Those in sight, by name; lost ones too, as long as they are in sight."""
    vacant: dict[str, float] = field(default_factory=dict)
    """Names of nodes that were taken, and since when: the cloud still tries to fill their slots."""
    written_off: frozenset[str] = frozenset()
    """Lost nodes whose slots could not be given up for `owed_s`: they count no longer."""
    removed: frozenset[tuple[str, str]] = frozenset()
    """Name and uid of nodes that are removed but may still be in sight for a moment; no uid: whoever has the name."""
    dead: tuple[str, ...] = ()
    """Uids of lost machines: a late sight does not revive them."""
    hanging_s: float | None = None
    """Since when an operation goes on that is no longer waited for: the cloud tries, and refuses to be told less."""
    given_up: bool = False
    """It has hung for `hang_s`: what it does not hold counts no longer."""
    granted: bool = False
    """The cloud refused some nodes and granted the rest, which will come although the zone has no more."""
    sighted_s: float | None = None
    filled_s: float | None = None
    """When the cloud last said that all the nodes are there which were asked for: older sights do not show them."""
    empty_since_s: float | None = None
    failures: int = 0
    retry_s: float | None = None
    last_error: str = ""
    asks_less: bool = False
    """Its last request was refused for a quota that has room for fewer nodes; those are requested once."""


class Shortage(StrEnum):
    STOCKOUT = "stockout"
    QUOTA = "quota"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Closure:
    """Nothing is asked for there, for a reason of this kind."""

    shortage: Shortage
    at_s: float
    """When it last said no."""
    until_s: float
    failures: int = 0
    """In a row."""
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """What is remembered of a stock."""

    closures: tuple[Closure, ...] = ()
    """One for each kind of shortage: a zone that is often empty is no sign of a quota that stays as it is."""
    distrusted_until_s: float | None = None
    """A node was taken there lately, or nobody answered: until then it comes last."""

    @property
    def closed(self) -> Closure | None:
        """The one that lasts longest."""
        return max(self.closures, key=lambda closure: closure.until_s, default=None)

    @property
    def closed_until_s(self) -> float | None:
        return self.closed.until_s if self.closed is not None else None

    @property
    def short_s(self) -> float | None:
        """When it last had nothing."""
        return max((closure.at_s for closure in self.closures), default=None)


@dataclass(frozen=True, slots=True)
class Block:
    """The job's workers cannot start in a cluster."""

    since_s: float
    until_s: float
    """End of the pause in requests; counts from the last report of a worker that cannot start."""
    failures: int
    """How often it was tried."""
    detail: str
    hint: str = ""
    nodes: frozenset[str] = frozenset()
    """Names of the nodes that it was last tried with."""
    of_controller: bool = False
    """The cluster's controller cannot start; over when it is heard."""


@dataclass(frozen=True, slots=True)
class LowUse:
    """Of a node on which the job computes too little of the time in which it computes or waits for others."""

    since_s: float
    at_s: float
    """When that was reported first, without a break or a long silence since, and last."""
    share: float


@dataclass(frozen=True, slots=True)
class Cutback:
    """Nodes went that were of no use."""

    nodes: int | None
    """So many were left: no more are asked for before `until_s`. None when that is over."""
    until_s: float
    times: int
    """How often this was over, and others went again."""


@dataclass(frozen=True, slots=True)
class Listing:
    number: int = 0
    asked_s: float | None = None
    """Set while one is on its way."""
    learned: int = 0
    learned_s: float | None = None
    """The one that was last learned from, and when it was asked for."""
    failures: int = 0
    retry_s: float | None = None
    error: str = ""
    hint: str = ""
    news_s: float | None = None
    """When something was heard that no listing has shown yet."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The newest plan of a planned job, and the one that is being made."""

    number: int = 0
    not_before_s: float | None = None
    """Until then what the job's steps need is waited for: an assumption would be no reason to move what trains."""
    asked_s: float | None = None
    """When the last one was asked for."""
    asked: Basis | None = None
    """Set while one is being made."""
    plan: Plan | None = None
    basis: Basis | None = None
    """What the newest was made from: it is followed only while all of that is still so."""
    facts: Basis | None = None
    facts_s: float = 0.0
    """What a plan would be made from now, and since when it has not changed."""
    told: tuple[Nodes, Change] | None = None


@dataclass(frozen=True, slots=True)
class Allocator:
    job: JobName
    offers: tuple[Offer, ...]
    """Most wanted first."""
    settings: AllocatorSettings
    wanted: int
    want: int = 0
    """Number of the newest want that was heard."""
    ended: str | None = None
    """Why the job ended; then all of its pools go."""
    lost: frozenset[ClusterName] = frozenset()
    """Silent clusters in which the job has no worker left, until they are heard again."""
    finished: bool = False
    """It has ended and nothing is left of it."""
    clusters: dict[ClusterName, bool] = field(default_factory=dict)
    """Those that are there, and whether they are ready."""
    unready: dict[ClusterName, str] = field(default_factory=dict)
    """What stands in the way of clusters that are not ready, as their keeper says."""
    pools: dict[PoolRef, Pool] = field(default_factory=dict)
    availability: dict[MachineKind, Availability] = field(default_factory=dict)
    blocks: dict[ClusterName, Block] = field(default_factory=dict)
    failing: dict[ClusterName, dict[str, float]] = field(default_factory=dict)
    """Names of nodes on which the job's worker cannot start, and since when."""
    released: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    deleted: dict[PoolRef, int] = field(default_factory=dict)
    """The newest listing when a pool was deleted: neither it nor one before it brings the pool back."""
    listing: Listing = Listing()
    operations: int = 0
    needless_since_s: float | None = None
    """Since when nothing is wanted."""
    quiet_since_s: float = 0.0
    """When the last operation ended, or the allocator began."""
    demand: Demand | None = None
    """Of a planned job."""
    market: Market | None = None
    quotas: Quotas = UNLIMITED
    """As last read, or as the cloud said when it refused a request."""
    quota_refused_s: float | None = None
    plans: Plans = Plans()
    by: str = ""
    """Whose word a planned job's pools follow now."""
    idle_since_s: dict[ClusterName, dict[str, float]] = field(default_factory=dict)
    """Since when the job has nothing on a node, by name."""
    low_use: dict[tuple[ClusterName, str], LowUse] = field(default_factory=dict)
    """By cluster and name of the node."""
    idle_cap: Cutback | None = None
    """Since nodes were idle: forgotten when something changes, which may make them useful."""
    cutback: Cutback | None = None
    """Since nodes were used too little: prices, profiles and losses do not make them useful."""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes in use that the job should leave, so that they can be given up: these very ones."""
    placed: Place | None = None
    """What the job was last told."""
    why: str = ""

    @property
    def synced(self) -> bool:
        """Nothing is done before the first listing."""
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
    """For a job that is new, or runs, or has ended: what there is of it is learned from the first listing.

    `measured_by_s`: until then the first plan waits for measured steps.
    """
    names = [pool_ref(job, offer) for offer in offers]
    for number, offer in enumerate(offers):
        if names[number] in names[:number]:
            raise UserError(
                f"{offer.machine_type} in {offer.zone} of cluster {offer.cluster} is offered twice",
                "keep one of the two in the fleet file",
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
