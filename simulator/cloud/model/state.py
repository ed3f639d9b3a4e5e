"""What the cloud knows. Times are seconds of this process's monotonic clock; nothing here reads a clock.

What is wanted (a group's target) and what there is (nodes with or without an instance) are kept apart, and so are the
instances of the cloud and what each region was told of them: either can be ahead of the other.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.cloud.model.machines import Machine
from simulator.cloud.model.names import ClusterKey, InstanceId, NodeName, OperationName, PoolKey, region_of
from simulator.market.markets import CPU, FREE, Lifetimes, Market, MicroUsd

DEFAULT_DISK_GB = 100
DEFAULT_DISK_TYPE = "pd-balanced"


@dataclass(frozen=True, slots=True)
class Rules:
    """How this cloud behaves; delays are already divided by the speed."""

    seed: int = 0
    regions: tuple[str, ...] = ()
    operation_s: float = 20.0
    """The least that an operation on a pool takes."""
    cluster_s: float = 240.0
    """From the request for a cluster until its API answers and its first nodes are asked for."""
    boot_s: float = 60.0
    """From an instance's start until its node is ready."""
    recreate_s: float = 10.0
    """From the end of a preempted instance until its group asks for another."""
    retry_s: float = 30.0
    """How long a group that was refused waits until it asks again."""
    stockout_s: float = 2100.0
    """How long an operation waits for instances that are refused before it ends with an error."""
    group_s: float = 0.0
    """Seconds from the request for a pool until its instance groups exist."""
    sticky_error_s: float = 86_400.0
    """Seconds that a pool keeps its error status after all its nodes run."""
    give_up_s: float = 2100.0
    """How long an operation waits for anything else."""
    forget_s: float = 10.0
    """From the end of an instance until Kubernetes forgets its node."""
    notice_s: float = 30.0
    """What a preempted node is given, unless told otherwise. Never divided by the speed: programs run in real time."""
    silent_share: float = 0.0
    """The share of the market's preemptions that come without a word."""
    default_capacity: int = 64
    """Accelerators in a zone of which no trace tells."""
    default_quota: int = 64
    """Accelerators of each kind in a region, spot and on demand apart."""
    operations_at_once: int = 5
    maintenance_s: float = 3600.0
    """What GPU nodes on demand are given before maintenance of their host. Never divided by the speed, as notices."""
    repair_s: float = 600.0
    """How long a node is not ready before GKE repairs it."""
    drain_s: float = 3600.0
    """The most that pods may take to leave a node that is drained."""
    upgrade_every_s: float = 2_592_000.0
    """How old the version of a pool's nodes gets before GKE upgrades them; 0: never by itself."""
    lifetimes: Lifetimes | None = None
    """How long spot nodes live; without, only capacity and the control endpoint take them."""


class TaintEffect(enum.StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: TaintEffect


DEFAULT_GRACE_S = 30.0
"""Seconds that a node delays its end, unless its pool says otherwise."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    machine: Machine
    accelerator: str = ""
    accelerators: int = 0
    """Of one node."""
    spot: bool = False
    zones: tuple[str, ...] = ()
    size: int = 0
    """Nodes in each zone, as GKE was last asked for: it does not hear what Compute is told to delete."""
    labels: Mapping[str, str] = field(default_factory=dict)
    resource_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    shutdown_grace_s: float = DEFAULT_GRACE_S
    disk_gb: int = DEFAULT_DISK_GB
    disk_type: str = DEFAULT_DISK_TYPE
    auto_upgrade: bool = True
    auto_repair: bool = True
    max_surge: int = 1
    max_unavailable: int = 0
    private: bool = False
    """Nodes without an external address."""
    service_account: str = "default"

    @property
    def bought_as(self) -> str:
        return self.accelerator or CPU

    @property
    def units(self) -> int:
        """What one node takes of its market: accelerators, or vCPUs where it has none."""
        return self.accelerators if self.accelerator else self.machine.vcpus


class Scope(enum.StrEnum):
    """What a maintenance exclusion forbids."""

    NO_UPGRADES = "NO_UPGRADES"
    NO_MINOR_UPGRADES = "NO_MINOR_UPGRADES"
    NO_MINOR_OR_NODE_UPGRADES = "NO_MINOR_OR_NODE_UPGRADES"


@dataclass(frozen=True, slots=True)
class Exclusion:
    scope: Scope
    from_s: float
    until_s: float

    def keeps_nodes(self, at_s: float) -> bool:
        """Whether it forbids upgrades of nodes at that time."""
        return self.scope is not Scope.NO_MINOR_UPGRADES and self.from_s <= at_s < self.until_s


@dataclass(frozen=True, slots=True)
class Cluster:
    key: ClusterKey
    uid: str
    called: str
    """Its name in its region, where two locations may have given the same."""
    created_s: float
    up_s: float
    """From then on its API answers."""
    echo: bytes = b""
    """What its creator said of it, in GKE's own encoding."""
    zones: tuple[str, ...] = ()
    """Where its pools are unless they say otherwise."""
    endpoint: str = ""
    ca: str = ""
    failed: "Failure | None" = None
    """Why its creation ended with an error."""
    deleting: bool = False
    exclusions: tuple[Exclusion, ...] = ()
    private_nodes: bool = False
    """For pools that do not say."""
    authorized_networks: tuple[str, ...] | None = None
    """From where its Kubernetes API may be reached; None: from anywhere."""

    @property
    def region(self) -> str:
        return region_of(self.key.location)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of a pool in one zone: Compute's instance group manager."""

    name: str
    zone: str
    target: int


class Shortage(enum.StrEnum):
    """GKE's own words for why an instance could not be had."""

    STOCKOUT = "GCE_STOCKOUT"
    QUOTA = "GCE_QUOTA_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be had: one of the shortages, or nothing that has a code."""

    shortage: Shortage | None
    message: str


@dataclass(frozen=True, slots=True)
class GroupError:
    """A refused attempt to create an instance, as Compute lists it for the group."""

    at_s: float
    node: NodeName
    zone: str
    why: Failure


@dataclass(frozen=True, slots=True)
class Trouble:
    """What GKE says of a pool since one of its operations failed. It stays although the nodes come later."""

    failure: Failure
    is_unusable: bool
    """Shown as ERROR: the pool got no node at all when it was created."""
    healed_s: float | None = None
    """When all its nodes ran again."""


@dataclass(frozen=True, slots=True)
class Pool:
    key: PoolKey
    uid: str
    spec: PoolSpec
    groups: tuple[Group, ...]
    echo: bytes = b""
    deleting: bool = False
    version_s: float = 0.0
    """When its nodes got their version."""
    grouped_s: float = 0.0
    """From then on its instance groups exist."""
    errors: tuple[GroupError, ...] = ()
    """The newest of its groups, oldest first."""
    trouble: Trouble | None = None

    def group(self, zone: str) -> Group | None:
        return next((group for group in self.groups if group.zone == zone), None)

    def market(self, zone: str) -> Market:
        return Market(zone, self.spec.bought_as)


@dataclass(frozen=True, slots=True)
class Instance:
    id: InstanceId
    started_s: float
    ready_s: float
    expires_s: float = math.inf
    """When the market takes it."""
    ends_s: float = math.inf
    """When the notice that it was given is over."""
    stops_s: float = math.inf
    """When it stops for maintenance of its host."""

    @property
    def is_doomed(self) -> bool:
        return self.ends_s < math.inf


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a group. Its name outlives its instances."""

    name: NodeName
    pool: PoolKey
    zone: str
    instance: Instance | None = None
    ask_s: float = 0.0
    """Not before then is an instance asked for."""
    refused: Failure | None = None
    leaving: bool = False
    """No longer of its group, but its instance has the rest of its notice."""
    is_surge: bool = False
    """Only there for the time of an upgrade."""
    drain_s: float | None = None
    """Since when its pods are evicted, because its machine will be re-created."""
    unready_s: float | None = None
    """Since when its kubelet does not report."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the region was told of one thing, and how that goes."""

    id: str = ""
    """What it confirmed to have: an instance's id or a cluster's uid; empty: nothing."""
    request: int = 0
    """The number of the request that is under way; 0: none."""
    failures: int = 0
    retry_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Doom:
    instance: InstanceId
    at_s: float
    notice_s: float


@dataclass(frozen=True, slots=True)
class Presence:
    """A node as its region knows it; outlives the node until the region has confirmed that it is gone."""

    node: NodeName
    pool: PoolKey
    told: Told = Told()
    doom: Doom | None = None
    doom_told: bool = False
    silenced: InstanceId | None = None
    """The machine whose kubelet stopped reporting."""
    announced: InstanceId | None = None
    """The machine that got the announcement of host maintenance."""
    drained: InstanceId | None = None
    """The machine that its pods have left."""
    forget_s: float = 0.0
    """From then on the region may forget it, if the cloud has no instance for it."""


@dataclass(frozen=True, slots=True)
class Region:
    name: str
    incarnation: str = ""
    """Empty until it was seen for the first time."""
    reachable: bool = False


class Kind(enum.StrEnum):
    CREATE_CLUSTER = "CREATE_CLUSTER"
    DELETE_CLUSTER = "DELETE_CLUSTER"
    CREATE_POOL = "CREATE_NODE_POOL"
    DELETE_POOL = "DELETE_NODE_POOL"
    RESIZE_POOL = "SET_NODE_POOL_SIZE"
    UPDATE = "UPDATE_CLUSTER"
    """Of a pool's settings or of a cluster's maintenance policy."""
    UPGRADE_NODES = "UPGRADE_NODES"
    REPAIR_NODES = "AUTO_REPAIR_NODES"
    DELETE_INSTANCES = "DELETE_INSTANCES"
    """Compute's, not GKE's: neither is in the other's way."""


@dataclass(frozen=True, slots=True)
class Operation:
    name: OperationName
    kind: Kind
    cluster: ClusterKey
    started_s: float
    pool: str = ""
    zone: str = ""
    nodes: tuple[NodeName, ...] = ()
    """That it removes (Compute's operations) or re-creates (repairs)."""
    expects: int = 0
    """Nodes that GKE waits for, whatever happens to the groups at Compute meanwhile (not verified against Google)."""
    done_s: float | None = None
    failed: Failure | None = None

    @property
    def pool_key(self) -> PoolKey:
        return PoolKey(*self.cluster, self.pool)

    @property
    def is_done(self) -> bool:
        return self.done_s is not None


@dataclass(frozen=True, slots=True)
class Offer:
    """A market as it is now. What the control endpoint says goes before what the trace says."""

    capacity: int | None = None
    price: MicroUsd | None = None
    capacity_by_hand: int | None = None
    price_by_hand: MicroUsd | None = None
    stocked_out: bool = False
    notice_s: float | None = None
    """What the next nodes that capacity takes are given."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """One pool's nodes in one zone. Exact: whole milliseconds, whole micro-dollars for an hour."""

    pool: PoolKey
    uid: str
    zone: str
    accelerator: str
    spot: bool
    labels: Mapping[str, str]
    since_ms: int
    nodes: int = 0
    rate: MicroUsd = FREE
    """Of one node for an hour, now."""
    node_ms: int = 0
    cost: int = 0
    """Micro-dollars × milliseconds ÷ hour: divided once, when it is shown."""


@dataclass(frozen=True, slots=True)
class Cloud:
    rules: Rules = Rules()
    clusters: Mapping[ClusterKey, Cluster] = field(default_factory=dict)
    pools: Mapping[PoolKey, Pool] = field(default_factory=dict)
    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    presences: Mapping[NodeName, Presence] = field(default_factory=dict)
    hosted: Mapping[tuple[str, str], Told] = field(default_factory=dict)
    """By region and the cluster's name there."""
    regions: Mapping[str, Region] = field(default_factory=dict)
    operations: Mapping[OperationName, Operation] = field(default_factory=dict)
    offers: Mapping[Market, Offer] = field(default_factory=dict)
    quotas: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Limits that were set, by project, scope and metric."""
    lines: Mapping[tuple[str, str], BillLine] = field(default_factory=dict)
    """By the pool's uid and zone."""
    roleless: frozenset[str] = frozenset()
    """Service accounts of nodes that lack the roles GKE needs."""
    made: int = 0
    """Numbers what is made, so that every name and every choice follows from the seed."""
    requests: int = 0
    """Numbers the requests to regions: an answer to an older one teaches nothing."""
