"""Several clouds as one: each call goes to the cloud of its cluster or zone.

A listing is complete or fails: a partial listing would make the missing resources look deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from controlplane.catalog.places import region_of
from controlplane.clouds.interface import (
    PROJECT,
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
    QuotaKey,
)
from controlplane.clouds.outcomes import NotFound, Outcome, QuotaExceeded, Refused, Unreachable
from messages.ids import ClusterName
from runtime.errors import UserError

T = TypeVar("T")

Places = Mapping[str, Sequence[tuple[ClusterName, Sequence[str]]]]
"""The clusters of each cloud with their zones, by the cloud's name."""


class Clouds:
    def __init__(self, clouds: Mapping[str, Cloud], places: Places) -> None:
        self._clouds = clouds
        self._planned = {cluster: name for name, clusters in places.items() for cluster, _ in clusters}
        self._by_cluster: Mapping[ClusterName, str] = self._planned
        """The cloud of each cluster that the fleet file names or the newest listing shows."""
        self._by_region = {
            region_of(zone): name for name, clusters in places.items() for _, zones in clusters for zone in zones
        }

    def part(self, name: str) -> Cloud:
        return self._clouds[name]

    # Reads

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        found = await self._of_all(lambda cloud: cloud.clusters())
        if isinstance(found, Unreachable | Refused):
            return found
        by_cluster = dict(self._planned)
        for name, clusters in found.items():
            for cluster in clusters:
                other = by_cluster.setdefault(cluster.name, name)
                if other != name:
                    return _in_two_clouds(cluster.name, other, name)
        self._by_cluster = by_cluster
        return [cluster for clusters in found.values() for cluster in clusters]

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        return _together(await self._of_all(lambda cloud: cloud.machines()))

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        return _together(await self._of_all(lambda cloud: cloud.market()))

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        """Quotas of a region, or of each cloud's project for `PROJECT`; their scope names the cloud."""
        if scope != PROJECT:
            name = self._by_region.get(scope)
            if name is None:
                return Refused(f"No cloud of the fleet has the region {scope}")
            return await self._clouds[name].quotas(scope)
        found = await self._of_all(lambda cloud: cloud.quotas(PROJECT))
        if isinstance(found, Unreachable | Refused):
            return found
        return [replace(quota, key=_outside(name, quota.key)) for name, quotas in found.items() for quota in quotas]

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        name = self._by_region.get(plan.kind.region)
        if name is None:
            return {}
        own = [replace(quota, key=_inside(name, quota.key)) for quota in quotas]
        return {_outside(name, key): amount for key, amount in self._clouds[name].needs(plan, own).items()}

    @property
    def quotas_page(self) -> str:
        return " or ".join(dict.fromkeys(cloud.quotas_page for cloud in self._clouds.values()))

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused:
        cloud = self._of(cluster)
        return await cloud.kubernetes_access(cluster) if cloud is not None else Refused(_unknown(cluster).detail)

    async def access_token(self, cluster: ClusterName) -> str:
        cloud = self._of(cluster)
        if cloud is None:
            raise UserError(_unknown(cluster).detail, "use a cluster that `clusters` of the fleet file lists")
        return await cloud.access_token(cluster)

    # Changes

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome:
        return await self._change(plan.name, lambda cloud: cloud.create_cluster_with_node_pool(plan))

    async def delete_cluster(self, cluster: ClusterName) -> Outcome:
        return await self._change(cluster, lambda cloud: cloud.delete_cluster(cluster))

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        return await self._change(cluster, lambda cloud: cloud.protect_from_upgrades(cluster, until))

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome:
        return await self._change(cluster, lambda cloud: cloud.create_pool(cluster, plan))

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome:
        return await self._change(pool.cluster, lambda cloud: cloud.resize_pool(pool, size))

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        return await self._change(pool.cluster, lambda cloud: cloud.remove_nodes(pool, nodes))

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        return await self._change(pool.cluster, lambda cloud: cloud.delete_pool(pool))

    async def close(self) -> None:
        for cloud in self._clouds.values():
            await cloud.close()

    def _of(self, cluster: ClusterName) -> Cloud | None:
        name = self._by_cluster.get(cluster)
        return self._clouds[name] if name is not None else None

    async def _change(self, cluster: ClusterName, change: Callable[[Cloud], Awaitable[Outcome]]) -> Outcome:
        name = self._by_cluster.get(cluster)
        if name is None:
            return _unknown(cluster)
        outcome = await change(self._clouds[name])
        if isinstance(outcome, QuotaExceeded):
            own = (replace(each, scope=_outside(name, QuotaKey(each.scope, "")).scope) for each in outcome.shortfalls)
            return replace(outcome, shortfalls=tuple(own))
        return outcome

    async def _of_all(
        self, read: Callable[[Cloud], Awaitable[T | Unreachable | Refused]]
    ) -> dict[str, T] | Unreachable | Refused:
        answers = await asyncio.gather(*(read(cloud) for cloud in self._clouds.values()))
        found: dict[str, T] = {}
        for name, answer in zip(self._clouds, answers, strict=True):
            if isinstance(answer, Unreachable | Refused):
                return replace(answer, detail=f"{name}: {answer.detail}")
            found[name] = answer
        return found


def _together(found: Mapping[str, Sequence[T]] | Unreachable | Refused) -> Sequence[T] | Unreachable | Refused:
    if isinstance(found, Unreachable | Refused):
        return found
    return [each for those in found.values() for each in those]


def scope_of(name: str) -> str:
    """The scope of the quotas of one cloud's project."""
    return f"{PROJECT} of {name}"


def _outside(name: str, key: QuotaKey) -> QuotaKey:
    """Translate a cloud's own key into the key that is unique in the fleet."""
    return key._replace(scope=scope_of(name)) if key.scope == PROJECT else key


def _inside(name: str, key: QuotaKey) -> QuotaKey:
    """Translate a key of the fleet into the cloud's own key."""
    return key._replace(scope=PROJECT) if key.scope == scope_of(name) else key


def _unknown(cluster: ClusterName) -> NotFound:
    return NotFound(f"No cloud of the fleet has the cluster {cluster}")


def _in_two_clouds(cluster: ClusterName, one: str, other: str) -> Refused:
    return Refused(
        f"Both {one} and {other} have a cluster {cluster}, but a cluster's name must be unique in the fleet",
        "delete one of the two, or rename the fleet's cluster in the fleet file",
    )
