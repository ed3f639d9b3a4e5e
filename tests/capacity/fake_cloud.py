"""A cloud in memory that performs requests at once and records them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from controlplane.clouds.interface import (
    PROJECT,
    SYSTEM_POOL,
    Cloud,
    ClusterInfo,
    ClusterPlan,
    ClusterStatus,
    KubernetesAccess,
    MachineInfo,
    MarketPrice,
    Needs,
    PoolInfo,
    PoolPlan,
    PoolRef,
    PoolStatus,
    Quota,
    QuotaKey,
)
from controlplane.clouds.observations import Look, look_at
from controlplane.clouds.outcomes import Done, Outcome, Refused, Unreachable
from messages.ids import ClusterName
from runtime.clock import SystemClock


def a_quota(scope: str, metric: str, limit: float, usage: float = 0.0) -> Quota:
    return Quota(QuotaKey(scope, metric), limit, usage)


class LooksAtOnce:
    """Looks for one reader: the next look begins shortly after its request."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def next(self, after: int) -> Look:
        await asyncio.sleep(0.01)
        return await look_at(self._cloud, SystemClock().wall_s(), after + 1)


class FakeCloud:
    def __init__(self, *clusters: str) -> None:
        self.infos = {ClusterName(name): _cluster(ClusterName(name)) for name in clusters}
        self.plans: list[PoolPlan] = []
        self.made: list[ClusterName] = []
        self.refusals = 0
        """The number of first listings that are not answered."""
        self.refusal: Refused | None = None
        """The answer to all listings, if set."""
        self.outcome: Outcome = Done()
        """The outcome of each creation."""
        self.removed: list[str] = []
        self.protections: list[tuple[ClusterName, float]] = []
        self.protection_refused: float | None = None
        """The cloud refuses protection beyond this time in Unix seconds."""
        self.running: list[MachineInfo] = []
        self.prices: Sequence[MarketPrice] | Unreachable = ()
        self.quota_by_scope: dict[str, Sequence[Quota] | Unreachable] = {}
        self.quotas_asked: list[str] = []
        self.listings = 0
        self.looks = 0
        """The number of requests for prices."""

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        self.listings += 1
        if self.refusals:
            self.refusals -= 1
            return Unreachable("nobody answered")
        if self.refusal is not None:
            return self.refusal
        return tuple(self.infos.values())

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome:
        self.made.append(plan.name)
        if self.outcome == Done():
            self.add_cluster(plan.name)
        return self.outcome

    async def delete_cluster(self, cluster: ClusterName) -> Outcome:
        del self.infos[cluster]
        return Done()

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        self.protections.append((cluster, until))
        refused = self.protection_refused
        if refused is not None and until > refused:
            return Refused("too long", "ask for less")
        self.infos[cluster] = replace(self.infos[cluster], protected_until=until)
        return Done()

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome:
        self.plans.append(plan)
        if self.outcome != Done():
            return self.outcome
        pool = PoolInfo(
            PoolRef(cluster, plan.name),
            plan.kind,
            plan.size,
            PoolStatus.RUNNING,
            plan.labels,
        )
        self._put(cluster, (*self.infos[cluster].pools, pool))
        return Done()

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome:
        pools = self.infos[pool.cluster].pools
        self._put(pool.cluster, tuple(replace(each, size=size) if each.ref == pool else each for each in pools))
        return Done()

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        self.removed += nodes
        size = next(each.size for each in self.infos[pool.cluster].pools if each.ref == pool)
        return await self.resize_pool(pool, size - len(nodes))

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        self._put(pool.cluster, tuple(each for each in self.infos[pool.cluster].pools if each.ref != pool))
        return Done()

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        self.quotas_asked.append(scope)
        return self.quota_by_scope.get(scope, ())

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        """GPUs by region and kind, disks that all kinds of a region share, GPUs of all regions."""
        region = plan.kind.region
        kind = f"{plan.kind.accelerator}{'_SPOT' if plan.kind.spot else ''}"
        found = {
            QuotaKey(region, kind): plan.kind.accelerators,
            QuotaKey(region, "DISK_GB"): self.disk_gb(plan),
            QuotaKey(PROJECT, "GPUS"): plan.kind.accelerators,
        }
        known = {quota.key for quota in quotas}
        return {key: amount for key, amount in found.items() if key in known and amount}

    def disk_gb(self, plan: PoolPlan) -> int:
        return 50 if plan.name == SYSTEM_POOL else 70

    @property
    def quotas_page(self) -> str:
        return "https://quotas.example"

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        return tuple(self.running)

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        self.looks += 1
        return self.prices

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused:
        return KubernetesAccess("http://127.0.0.1:1", "")

    async def access_token(self, cluster: ClusterName) -> str:
        return "token"

    async def close(self) -> None:
        self.infos.clear()

    def add_cluster(self, name: ClusterName) -> None:
        self.infos[name] = _cluster(name)

    def pools(self) -> list[PoolInfo]:
        return [pool for info in self.infos.values() for pool in info.pools]

    def _put(self, cluster: ClusterName, pools: tuple[PoolInfo, ...]) -> None:
        self.infos[cluster] = replace(self.infos[cluster], pools=pools)


def _cluster(name: ClusterName) -> ClusterInfo:
    return ClusterInfo(name, "us-central1-a", ready=True, labels={}, status=ClusterStatus.RUNNING)
