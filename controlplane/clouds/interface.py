"""What every cloud must do. Small on purpose: EKS or AKS is one more implementation held to the same contract tests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.outcomes import Outcome, QuotaExceeded, Refused, StockedOut, Unreachable
from messages.ids import ClusterName

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
    """A node pool of one zone."""

    name: str
    kind: MachineKind
    size: int
    disk_gb: int = 100
    disk_type: str = "pd-balanced"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    driver: str = "default"
    """GPU driver installation: `default`, `latest` or `disabled`."""
    workload_identity: bool = True
    shutdown_grace_s: int = 30
    tags: tuple[str, ...] = ()
    service_account: str | None = None
    private: bool = False
    """Nodes have no external address."""
    image_streaming: bool = False
    """Containers start before their image is pulled completely."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A VPC-native cluster with a small system pool."""

    name: ClusterName
    location: str
    """A zone or a region."""
    system_machine_type: str
    system_size: int
    network: str
    subnetwork: str
    labels: Mapping[str, str] = field(default_factory=dict)
    release_channel: str = "regular"
    pod_range: str | None = None
    service_range: str | None = None
    tags: tuple[str, ...] = ()
    system_zone: str | None = None
    """Where the system pool is; needed where the location is a region, or there would be one in each of its zones."""
    system_disk_gb: int = 50
    system_disk_type: str = "pd-balanced"
    service_account: str | None = None
    protect_s: float = PROTECT_S
    private_nodes: bool = False
    authorized_networks: tuple[str, ...] = ()
    """CIDR blocks from which the Kubernetes API may be reached; empty: from anywhere."""


def system_pool(plan: ClusterPlan) -> PoolPlan:
    return PoolPlan(
        name="system",
        kind=MachineKind(plan.system_zone or plan.location, plan.system_machine_type, "", 0, spot=False),
        size=plan.system_size,
        disk_gb=plan.system_disk_gb,
        disk_type=plan.system_disk_type,
        private=plan.private_nodes,
    )


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


PROJECT = "the project"
"""Scope of a quota that all regions share."""


class QuotaKey(NamedTuple):
    """One limit on what the project may have."""

    scope: str
    """A region, or `PROJECT`."""
    metric: str
    """The cloud's own name for it, shown to people."""


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

    async def access_token(self) -> str:
        """A fresh one for Kubernetes, cached until shortly before it expires.

        Raises `Temporary` where nobody answers, and `UserError` where a person has to act.
        """

    async def api_headers(self) -> Mapping[str, str]:
        """HTTP headers for another API of the same provider: the token, and the project that pays.

        Raises as `access_token` does.
        """

    async def close(self) -> None: ...
