"""Changes that GKE's API, Compute's API and the control endpoint can request."""

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
    """Changes a pool's settings for nodes created from now on."""

    key: PoolKey
    spec: PoolSpec
    echo: bytes


@dataclass(frozen=True, slots=True)
class SetExclusions:
    """Sets a cluster's maintenance exclusions; `echo` has the rest of the new maintenance policy."""

    key: ClusterKey
    exclusions: tuple[Exclusion, ...]
    echo: bytes


@dataclass(frozen=True, slots=True)
class UpgradePool:
    key: PoolKey
    forced: bool = False
    """Upgrade even during an exclusion, as GKE does for security or at a version's end of support."""


@dataclass(frozen=True, slots=True)
class MaintainHost:
    node: NodeName
    notice_s: float | None = None
    """None: the usual notice."""


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
    """Skip nodes that are not in the group; otherwise they refuse the whole request."""


@dataclass(frozen=True, slots=True)
class PreemptNode:
    node: NodeName
    notice_s: float | None = None
    """None: the usual notice; 0: no notice."""


@dataclass(frozen=True, slots=True)
class StockOut:
    market: Market
    on: bool


@dataclass(frozen=True, slots=True)
class SetCapacity:
    market: Market
    capacity: int | None
    """None: the value of the trace."""


@dataclass(frozen=True, slots=True)
class SetPrice:
    market: Market
    price: MicroUsd | None
    """None: the value of the trace."""


@dataclass(frozen=True, slots=True)
class SetQuota:
    project: str
    scope: str
    """A region; empty for the whole project."""
    metric: str
    limit: int | None
    """None: the default."""


@dataclass(frozen=True, slots=True)
class SetRoles:
    """Grants or revokes the roles that GKE needs for a service account of nodes."""

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
    """The request took effect at once, without an operation."""


Outcome = Started | Done | Refusal
