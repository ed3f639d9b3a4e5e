"""What every cloud must do. Small on purpose: EKS or AKS is one more implementation held to the same contract tests."""

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
"""Seconds of protection from node upgrades that one request asks for."""


class ClusterStatus(StrEnum):
    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPING = "stopping"
    ERROR = "error"
    """Its creation failed; it still has a name, and costs, until it is deleted."""


class PoolStatus(StrEnum):
    PROVISIONING = "provisioning"
    RUNNING = "running"
    """It exists. Whether it lacks nodes, and why, is in `PoolInfo.shortage`."""
    STOPPING = "stopping"
    UPDATING = "updating"
    """The cloud changes its nodes, in an upgrade, a repair or a resize; it may have extra nodes meanwhile."""
    ERROR = "error"
    """No node will ever come: it has to be deleted."""


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
    """A node pool of one zone. Disks, drivers, networks and the like are settings of the provider."""

    name: str
    kind: MachineKind
    size: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    shutdown_grace_s: int = 30
    """Seconds by which a preempted node delays its end."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster with a small system pool. Its network and the like are settings of the provider."""

    name: ClusterName
    location: str
    """A zone or a region."""
    system: PoolPlan
    labels: Mapping[str, str] = field(default_factory=dict)
    protect_s: float = PROTECT_S


def system_pool(zone: str, machine_type: str, size: int) -> PoolPlan:
    """The pool that a cluster begins with, which no job uses."""
    return PoolPlan(SYSTEM_POOL, MachineKind(zone, machine_type, "", 0, spot=False), size)


@dataclass(frozen=True, slots=True)
class RecentShortage:
    """The newest refusal of a node that a pool still misses."""

    reason: StockedOut | QuotaExceeded | Refused
    age_s: float
    """By the cloud's own clock."""


@dataclass(frozen=True, slots=True)
class PoolInfo:
    ref: PoolRef
    kind: MachineKind
    size: int
    """As the cloud last reported its target; the nodes themselves are seen through Kubernetes."""
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
    """What a person should correct though it runs, and how; empty if nothing is known."""
    status: ClusterStatus = ClusterStatus.PROVISIONING
    protected_until: float | None = None
    """Unix seconds until when the cloud does not upgrade its nodes by itself; None: it may do so now."""


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """How to reach a cluster's API. Tokens are asked for each time they are needed: they expire."""

    endpoint: str
    ca_certificate: str
    """PEM; empty where the endpoint is plain HTTP."""


class QuotaKey(NamedTuple):
    """One limit on what the project may have."""

    scope: str
    """A region, or `PROJECT`."""
    metric: str
    """The provider's name for it: an opaque key for us, and text for people."""


@dataclass(frozen=True, slots=True)
class Quota:
    key: QuotaKey
    limit: float
    usage: float


Needs = Mapping[QuotaKey, int]
"""What one node takes of each quota."""


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """A machine as the cloud bills it: the next one under the same name is another."""

    id: str
    name: str
    """Of its node, too."""
    kind: MachineKind
    started_at: float
    """Unix seconds; it costs from then on."""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MarketPrice:
    """Of one accelerator with its share of the machine; of one vCPU where the accelerator is `cpu`."""

    zone: str
    accelerator: str
    spot_micro_usd_per_hour: int
    on_demand_micro_usd_per_hour: int


class Cloud(Protocol):
    """Reads answer with what was found or why not; changes with an outcome when the operation has ended."""

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused: ...

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome: ...

    async def delete_cluster(self, cluster: ClusterName) -> Outcome: ...

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        """Keep its nodes from upgrades until then (Unix seconds); what other people set stays as it is."""

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome: ...

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome: ...

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        """These very nodes; the pool's target shrinks with them."""

    async def delete_pool(self, pool: PoolRef) -> Outcome: ...

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        """Those of a region, or of the whole `PROJECT`."""

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        """What one node of the pool takes of these quotas. Pure: makes no call."""

    @property
    def quotas_page(self) -> str:
        """Where a person asks for more."""

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        """All that were made for a job and cost now, also those that are not nodes yet."""

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        """Prices of this moment, where they move; none where they are those of a list."""

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused: ...

    async def access_token(self, cluster: ClusterName) -> str:
        """A fresh token for the Kubernetes API of a cluster, cached until shortly before it expires.

        Raises `Temporary` where nobody answers, and `UserError` where a person has to act.
        """

    async def close(self) -> None: ...
