"""The state of the simulated cloud.

Fields of `Rules` ending in `_s` are durations. In all other classes they are points in time, in seconds of this
process's monotonic clock, unless their docstring says otherwise. Nothing here reads a clock.

The wanted state (a group's target) and the actual state (nodes with or without an instance) are separate. So are the
instances of the cloud and what each region has confirmed: either can be ahead of the other.
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
    """Settings of this cloud. Durations are already divided by the speed, except where noted."""

    seed: int = 0
    regions: tuple[str, ...] = ()
    operation_s: float = 20.0
    """Least seconds of an operation on a cluster, pool or instances, except upgrades and repairs."""
    cluster_s: float = 240.0
    """Seconds from the request for a cluster until its API answers and its first nodes are requested."""
    boot_s: float = 60.0
    """Seconds from an instance's start until its node is ready."""
    recreate_s: float = 10.0
    """Seconds from an instance's end, by preemption or with its region, until its group requests another."""
    retry_s: float = 30.0
    """Seconds before a group requests a refused instance again."""
    stockout_s: float = 2100.0
    """Seconds that a creation or a resize waits for refused instances before it ends with an error."""
    group_s: float = 0.0
    """Seconds from the request for a pool until its instance groups exist."""
    sticky_error_s: float = 86_400.0
    """Seconds that a pool keeps its error status after all its nodes run, unless a resize succeeds earlier."""
    give_up_s: float = 2100.0
    """Seconds before a creation or resize that waits for anything else, or an upgrade or repair that waits for refused
    instances, ends with an error."""
    forget_s: float = 10.0
    """Seconds from the same end until its region removes the node, unless another instance is ready earlier."""
    notice_s: float = 30.0
    """Seconds of notice in pools with the default grace; another grace changes it in proportion. Never divided by the
    speed: programs run in real time."""
    silent_share: float = 0.0
    """Share of preemptions by capacity or lifetime that come without notice, 0 to 1."""
    default_capacity: int = 64
    """Accelerators for spot nodes in each market whose capacity nothing sets."""
    default_quota: int = 64
    """Limit of each accelerator in a region if none is set, separate for spot and on demand."""
    operations_at_once: int = 5
    """Operations that GKE runs at the same time on one cluster."""
    maintenance_s: float = 3600.0
    """Default seconds of notice before host maintenance of on-demand nodes with accelerators. Never divided by the
    speed."""
    repair_s: float = 600.0
    """Seconds that a node is not ready before GKE repairs it, if its pool repairs nodes."""
    drain_s: float = 3600.0
    """Most seconds that pods may take to leave a node before its machine is re-created."""
    upgrade_every_s: float = 2_592_000.0
    """Seconds since a pool's nodes got their version after which GKE upgrades them; 0: never by itself."""
    lifetimes: Lifetimes | None = None
    """Lifetimes of spot nodes; None: only capacity and the control endpoint preempt them."""


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
"""Seconds that a kubelet delays the end of a preempted node for its pods, unless the pool sets another value."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    machine: Machine
    accelerator: str = ""
    accelerators: int = 0
    """Accelerators of one node."""
    spot: bool = False
    zones: tuple[str, ...] = ()
    size: int = 0
    """Nodes in each zone as last requested from GKE; Compute's deletions do not change it."""
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
        """Units of its market that one node uses: accelerators, or vCPUs if it has none."""
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
        """True if the exclusion forbids upgrades of nodes at that time."""
        return self.scope is not Scope.NO_MINOR_UPGRADES and self.from_s <= at_s < self.until_s


@dataclass(frozen=True, slots=True)
class Cluster:
    key: ClusterKey
    uid: str
    name_in_region: str
    """The name under which its region has it, unique although two locations may have clusters of the same name."""
    created_s: float
    up_s: float
    """Time from which its region is requested to run its API."""
    echo: bytes = b""
    """The request that created or last updated it, in GKE's encoding."""
    zones: tuple[str, ...] = ()
    """Default zones of its pools."""
    endpoint: str = ""
    ca: str = ""
    failed: "Failure | None" = None
    """Why its creation ended with an error; None again when all its nodes run."""
    deleting: bool = False
    exclusions: tuple[Exclusion, ...] = ()
    private_nodes: bool = False
    """Default of `PoolSpec.private` in its pools."""
    authorized_networks: tuple[str, ...] | None = None
    """Networks that may reach its Kubernetes API; None: all."""

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
    """Reasons for a refused instance, as GKE's error codes."""

    STOCKOUT = "GCE_STOCKOUT"
    QUOTA = "GCE_QUOTA_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed; `shortage` is None for reasons without a code."""

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
class StatusError:
    """The error in a pool's status after its creation or a resize failed. It stays for a time after the nodes came."""

    failure: Failure
    is_unusable: bool
    """The status is ERROR instead of RUNNING_WITH_ERROR: the creation ended without a running node."""
    recovered_at_s: float | None = None
    """First time at which all its nodes ran after the error."""


@dataclass(frozen=True, slots=True)
class Pool:
    key: PoolKey
    uid: str
    spec: PoolSpec
    groups: tuple[Group, ...]
    echo: bytes = b""
    deleting: bool = False
    version_s: float = 0.0
    """Time at which it was created or its last upgrade ended."""
    grouped_s: float = 0.0
    """Time from which its instance groups exist."""
    errors: tuple[GroupError, ...] = ()
    """The newest errors of its groups, oldest first."""
    status_error: StatusError | None = None

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
    """Time at which the market preempts it."""
    ends_s: float = math.inf
    """Time at which its notice ends."""
    stops_s: float = math.inf
    """Time at which it stops for maintenance of its host."""

    @property
    def is_noticed(self) -> bool:
        return self.ends_s < math.inf


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a group, with or without an instance. It keeps its name when it gets another instance."""

    name: NodeName
    pool: PoolKey
    zone: str
    instance: Instance | None = None
    request_at_s: float = 0.0
    """Earliest time at which its group requests an instance."""
    refused: Failure | None = None
    leaving: bool = False
    """It has left its group, but its instance runs until its notice ends."""
    is_surge: bool = False
    """It exists only during an upgrade."""
    drain_began_s: float | None = None
    """Time at which the eviction of its pods began, because its machine will be re-created; None: not draining."""
    unready_since_s: float | None = None
    """Time since which its kubelet does not report; None: it reports."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a region has confirmed of one cluster or node, and the state of the next request to it."""

    id: str = ""
    """The instance's id or cluster's uid that the region has; empty: none."""
    request: int = 0
    """Number of the request that is under way; 0: none."""
    failures: int = 0
    """Requests that failed since one succeeded."""
    retry_at_s: float = 0.0
    """Earliest time of the next request."""


@dataclass(frozen=True, slots=True)
class Notice:
    instance: InstanceId
    at_s: float
    notice_s: float
    """Duration of the notice."""


@dataclass(frozen=True, slots=True)
class RegionNode:
    """What the region knows of a node. It is removed when neither the cloud nor the region has the node."""

    node: NodeName
    pool: PoolKey
    reported: Reported = Reported()
    notice: Notice | None = None
    notice_reported: bool = False
    silenced: InstanceId | None = None
    """The instance whose kubelet stopped reporting."""
    announced: InstanceId | None = None
    """The instance to which host maintenance was announced."""
    drained: InstanceId | None = None
    """The instance that all pods have left."""
    forget_at_s: float = 0.0
    """Time at which the region is requested to remove the node, if the instance that it has is gone."""


@dataclass(frozen=True, slots=True)
class Region:
    name: str
    incarnation: str = ""
    """Changes when the region restarts; empty until it answers for the first time."""
    reachable: bool = False


class Kind(enum.StrEnum):
    CREATE_CLUSTER = "CREATE_CLUSTER"
    DELETE_CLUSTER = "DELETE_CLUSTER"
    CREATE_POOL = "CREATE_NODE_POOL"
    DELETE_POOL = "DELETE_NODE_POOL"
    RESIZE_POOL = "SET_NODE_POOL_SIZE"
    UPDATE = "UPDATE_CLUSTER"
    """Update of a pool's settings or of a cluster's maintenance policy."""
    UPGRADE_NODES = "UPGRADE_NODES"
    REPAIR_NODES = "AUTO_REPAIR_NODES"
    DELETE_INSTANCES = "DELETE_INSTANCES"
    """An operation of Compute, which does not conflict with those of GKE."""


@dataclass(frozen=True, slots=True)
class Operation:
    name: OperationName
    kind: Kind
    cluster: ClusterKey
    started_s: float
    pool: str = ""
    zone: str = ""
    nodes: tuple[NodeName, ...] = ()
    """Nodes that it removes (Compute's operations) or re-creates (repairs)."""
    expects: int = 0
    """Sum of the pool's targets at the start. A creation or resize does not succeed while Compute has lowered them (not
    verified against Google)."""
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
    """The current state of a market. Values set by hand, through the control endpoint, override those of the trace."""

    capacity: int | None = None
    price: MicroUsd | None = None
    capacity_by_hand: int | None = None
    price_by_hand: MicroUsd | None = None
    stocked_out: bool = False
    notice_s: float | None = None
    """Duration of the notice for nodes that are preempted for lack of capacity; None: the usual one."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """The cost of one pool's nodes in one zone. Exact: whole milliseconds, whole micro-dollars per hour."""

    pool: PoolKey
    uid: str
    zone: str
    accelerator: str
    spot: bool
    labels: Mapping[str, str]
    since_ms: int
    nodes: int = 0
    rate: MicroUsd = FREE
    """Current price of one node for an hour."""
    node_ms: int = 0
    cost: int = 0
    """Micro-dollars per hour × milliseconds; divided once, when it is shown."""


@dataclass(frozen=True, slots=True)
class Cloud:
    rules: Rules = Rules()
    clusters: Mapping[ClusterKey, Cluster] = field(default_factory=dict)
    pools: Mapping[PoolKey, Pool] = field(default_factory=dict)
    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    region_nodes: Mapping[NodeName, RegionNode] = field(default_factory=dict)
    hosted: Mapping[tuple[str, str], Reported] = field(default_factory=dict)
    """What the regions have confirmed of clusters, by region and name in the region."""
    regions: Mapping[str, Region] = field(default_factory=dict)
    operations: Mapping[OperationName, Operation] = field(default_factory=dict)
    offers: Mapping[Market, Offer] = field(default_factory=dict)
    quotas: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Limits that were set, by project, scope and metric."""
    lines: Mapping[tuple[str, str], BillLine] = field(default_factory=dict)
    """Lines by the pool's uid and zone."""
    roleless: frozenset[str] = frozenset()
    """Service accounts of nodes that lack the roles GKE needs."""
    choices: int = 0
    """Number of names and choices so far. The seed and the number determine each of them."""
    requests: int = 0
    """Number of requests to regions so far. Answers to outdated requests are ignored."""
