"""A cloud that only the leader can change. `may_act` is checked before each change, in case the lease is lost."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from controlplane.capacity.observer import Observer
from controlplane.clouds.interface import (
    Cloud,
    ClusterInfo,
    ClusterPlan,
    KubernetesAccess,
    MachineInfo,
    MarketPrice,
    Needs,
    PoolPlan,
    PoolRef,
    Quota,
)
from controlplane.clouds.outcomes import Outcome, Refused, Unreachable
from messages.ids import ClusterName

NOT_LEADING = Unreachable("this master no longer leads")


class LeadersCloud:
    def __init__(self, cloud: Cloud, may_act: Callable[[], bool], observer: Observer) -> None:
        """`observer` performs the reads."""
        self._cloud = cloud
        self._may_act = may_act
        self._observer = observer

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        return await self._observer.clusters()

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome:
        return await self._change(lambda: self._cloud.create_cluster_with_node_pool(plan))

    async def delete_cluster(self, cluster: ClusterName) -> Outcome:
        return await self._change(lambda: self._cloud.delete_cluster(cluster))

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        return await self._change(lambda: self._cloud.protect_from_upgrades(cluster, until))

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome:
        return await self._change(lambda: self._cloud.create_pool(cluster, plan))

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome:
        return await self._change(lambda: self._cloud.resize_pool(pool, size))

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        return await self._change(lambda: self._cloud.remove_nodes(pool, nodes))

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        return await self._change(lambda: self._cloud.delete_pool(pool))

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        return await self._cloud.quotas(scope)

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        return self._cloud.needs(plan, quotas)

    @property
    def quotas_page(self) -> str:
        return self._cloud.quotas_page

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        return await self._observer.machines()

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        return await self._observer.market()

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused:
        """Access for leaders only, because it allows changes in the cluster."""
        return await self._cloud.kubernetes_access(cluster) if self._may_act() else NOT_LEADING

    async def access_token(self, cluster: ClusterName) -> str:
        return await self._cloud.access_token(cluster)

    async def close(self) -> None:
        await self._observer.close()
        await self._cloud.close()

    async def _change(self, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        return await work() if self._may_act() else NOT_LEADING
