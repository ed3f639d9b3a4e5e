"""The interface of every cloud. It is small, so that EKS or AKS can implement it and pass the same contract tests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.outcomes import PROJECT as PROJECT
from controlplane.clouds.outcomes import Outcome, QuotaExceeded, Refused, StockedOut, Unreachable
from messages.ids import ClusterName

SYSTEM_POOL = "system"
PROTECT_S = 180 * 86_400.0
"""Seconds for which one request protects a cluster from node upgrades."""


class ClusterStatus(StrEnum):
    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPING = "stopping"
    ERROR = "error"
    """The creation failed. The cluster occupies its name and costs money until it is deleted."""


class PoolStatus(StrEnum):
    PROVISIONING = "provisioning"
    RUNNING = "running"
    """The pool exists. `PoolInfo.shortage` explains missing nodes."""
    STOPPING = "stopping"
    UPDATING = "updating"
    """The cloud upgrades, repairs or resizes the pool, which may have extra nodes meanwhile."""
    ERROR = "error"
    """The pool never gets nodes and must be deleted."""


@dataclass(frozen=True, slots=True)
class PoolRef:
    cluster: ClusterName
    pool: str


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A node pool of one zone. The provider's settings define disks, drivers and networks."""

    name: str
    kind: MachineKind
    size: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    shutdown_grace_s: int = 30
    """Seconds by which a preempted node delays its shutdown."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster with a small system pool. The provider's settings define its network."""

    name: ClusterName
    location: str
    """A zone or a region."""
    system: PoolPlan
    labels: Mapping[str, str] = field(default_factory=dict)
    protect_s: float = PROTECT_S


def system_pool(zone: str, machine_type: str, size: int) -> PoolPlan:
    """The first pool of a cluster; no job uses it."""
    return PoolPlan(SYSTEM_POOL, MachineKind(zone, machine_type, "", 0, spot=False), size)


@dataclass(frozen=True, slots=True)
class RecentShortage:
    """The newest refusal of a node that a pool still lacks."""

    reason: StockedOut | QuotaExceeded | Refused
    age_s: float
    """Seconds since the refusal by the cloud's clock."""


@dataclass(frozen=True, slots=True)
class PoolInfo:
    ref: PoolRef
    kind: MachineKind
    size: int
    """The target that the cloud reported last. Kubernetes shows the nodes themselves."""
    status: PoolStatus
    labels: Mapping[str, str]
    detail: str = ""
    shortage: RecentShortage | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    name: ClusterName
    location: str
    ready: bool
    labels: Mapping[str, str]
    pools: tuple[PoolInfo, ...] = ()
    detail: str = ""
    advice: str = ""
    """What a person should correct although the cluster runs, and how; may be empty."""
    status: ClusterStatus = ClusterStatus.PROVISIONING
    protected_until: float | None = None
    """Unix seconds until which the cloud does not upgrade nodes by itself; None: it may upgrade them now."""


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """How to reach a cluster's API. It has no token, because tokens expire: see `Cloud.access_token`."""

    endpoint: str
    ca_certificate: str
    """PEM; empty if the endpoint is plain HTTP."""


class QuotaKey(NamedTuple):
    """One limit on what the project may use."""

    scope: str
    """A region, or `PROJECT`."""
    metric: str
    """The provider's name of the quota: an opaque key for the control plane, text for people."""


@dataclass(frozen=True, slots=True)
class Quota:
    key: QuotaKey
    limit: float
    usage: float


Needs = Mapping[QuotaKey, int]
"""The amount of each quota that one node needs."""


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """A machine as the cloud bills it. A later machine with the same name has another id."""

    id: str
    name: str
    """The name of the machine and of its node."""
    kind: MachineKind
    started_at: float
    """Unix seconds from which the machine costs money."""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MarketPrice:
    """The price of one accelerator with its share of the machine, or of one vCPU if the accelerator is `cpu`."""

    zone: str
    accelerator: str
    spot_micro_usd_per_hour: int
    on_demand_micro_usd_per_hour: int


class Cloud(Protocol):
    """A provider. A read returns its result or why it failed; a change returns an outcome when its operation ends."""

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused: ...

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome: ...

    async def delete_cluster(self, cluster: ClusterName) -> Outcome: ...

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        """Prevent node upgrades until a time in Unix seconds. Maintenance settings of other people do not change."""

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome: ...

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome: ...

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        """Remove exactly these nodes and reduce the pool's target by their number."""

    async def delete_pool(self, pool: PoolRef) -> Outcome: ...

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        """Quotas of a region, or of the whole `PROJECT`."""

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        """What one node of the pool needs of these quotas. Pure: makes no call."""

    @property
    def quotas_page(self) -> str:
        """The web page on which a person requests more quota."""

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        """All machines of jobs that cost money now, including machines that are not nodes yet."""

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        """Current prices in zones where prices change; empty if the cloud has only list prices."""

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused: ...

    async def access_token(self, cluster: ClusterName) -> str:
        """A fresh token for the Kubernetes API of a cluster, cached until shortly before it expires.

        Raises `Temporary` if the cloud does not answer, and `UserError` if a person must act.
        """

    async def close(self) -> None: ...
