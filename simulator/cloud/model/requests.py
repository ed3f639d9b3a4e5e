"""Everything that the cloud can be asked to change, by GKE's API, by Compute's and by the control endpoint."""

from dataclasses import dataclass

from simulator.cloud.model.names import ClusterKey, NodeName, OperationName, PoolKey
from simulator.cloud.model.refusals import Refusal
from simulator.cloud.model.state import Exclusion, PoolSpec
from simulator.market.markets import Market, MicroUsd


@dataclass(frozen=True, slots=True)
class PoolWish:
    name: str
    spec: PoolSpec
    echo: bytes = b""


@dataclass(frozen=True, slots=True)
class CreateCluster:
    key: ClusterKey
    pools: tuple[PoolWish, ...]
    zones: tuple[str, ...] = ()
    echo: bytes = b""
    exclusions: tuple[Exclusion, ...] = ()
    private_nodes: bool = False
    authorized_networks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeleteCluster:
    key: ClusterKey


@dataclass(frozen=True, slots=True)
class CreatePool:
    cluster: ClusterKey
    wish: PoolWish


@dataclass(frozen=True, slots=True)
class DeletePool:
    key: PoolKey


@dataclass(frozen=True, slots=True)
class ResizePool:
    key: PoolKey
    size: int
    """Nodes in each zone."""


@dataclass(frozen=True, slots=True)
class UpdatePool:
    """For nodes that are made from now on."""

    key: PoolKey
    spec: PoolSpec
    echo: bytes


@dataclass(frozen=True, slots=True)
class SetExclusions:
    """Of a cluster, with everything else that its new maintenance policy says in the echo."""

    key: ClusterKey
    exclusions: tuple[Exclusion, ...]
    echo: bytes


@dataclass(frozen=True, slots=True)
class UpgradePool:
    key: PoolKey
    forced: bool = False
    """Also during an exclusion: as GKE does for security, or at a version's end of support."""


@dataclass(frozen=True, slots=True)
class MaintainHost:
    node: NodeName
    notice_s: float | None = None
    """None: as usual."""


@dataclass(frozen=True, slots=True)
class SetNodeReady:
    node: NodeName
    ready: bool


@dataclass(frozen=True, slots=True)
class DeleteInstances:
    project: str
    zone: str
    group: str
    nodes: tuple[NodeName, ...]
    skip_strangers: bool = False
    """Whether those that are not in the group are passed over, or refuse the whole."""


@dataclass(frozen=True, slots=True)
class PreemptNode:
    node: NodeName
    notice_s: float | None = None
    """None: as usual; 0: without a word."""


@dataclass(frozen=True, slots=True)
class StockOut:
    market: Market
    on: bool


@dataclass(frozen=True, slots=True)
class SetCapacity:
    market: Market
    capacity: int | None
    """None: as the trace says."""


@dataclass(frozen=True, slots=True)
class SetPrice:
    market: Market
    price: MicroUsd | None
    """None: as the trace says."""


@dataclass(frozen=True, slots=True)
class SetQuota:
    project: str
    scope: str
    """A region, or empty: the whole project."""
    metric: str
    limit: int | None
    """None: the default."""


@dataclass(frozen=True, slots=True)
class SetRoles:
    """The service account of nodes has the roles that GKE needs, or lacks them."""

    account: str
    granted: bool


Request = (
    CreateCluster
    | DeleteCluster
    | CreatePool
    | DeletePool
    | ResizePool
    | UpdatePool
    | SetExclusions
    | UpgradePool
    | MaintainHost
    | SetNodeReady
    | DeleteInstances
    | PreemptNode
    | StockOut
    | SetCapacity
    | SetPrice
    | SetQuota
    | SetRoles
)


@dataclass(frozen=True, slots=True)
class Started:
    operation: OperationName


@dataclass(frozen=True, slots=True)
class Done:
    """At once, without an operation."""


Outcome = Started | Done | Refusal
