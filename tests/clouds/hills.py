"""A second cloud, in memory and unlike Google's, with its own provider, keys, prices and quotas."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import Struct

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.offers import Offer as CatalogOffer
from controlplane.catalog.price_list import Price
from controlplane.catalog.refresh import Prices
from controlplane.clouds.interface import (
    PROJECT,
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
    system_pool,
)
from controlplane.clouds.outcomes import (
    AlreadyExists,
    Busy,
    Done,
    NotFound,
    Outcome,
    QuotaExceeded,
    Refused,
    Shortfall,
    StockedOut,
    Unreachable,
)
from controlplane.clouds.providers import Environ, Problem
from controlplane.clouds.spec import CloudSpec, Fleet, SystemPool
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL, JOB_LABEL

KIND = "hills"
REGION = "highland1"
ZONE = f"{REGION}-a"
MACHINE = "Croft.large"
SYSTEM_MACHINE = "Croft.tiny"
CARDS = "cards"
CARDS_EVERYWHERE = "cards-everywhere"
PULL_HINT = "ask the laird"
AWAY = Unreachable("no path leads to the hills")


@dataclass
class Field:
    """A pool of the cloud."""

    plan: PoolPlan
    target: int
    nodes: list[str] = field(default_factory=list)
    is_busy: bool = False


@dataclass
class Hills:
    """The state of the cloud, shared by all masters."""

    clusters: dict[ClusterName, ClusterPlan] = field(default_factory=dict)
    fields: dict[PoolRef, Field] = field(default_factory=dict)
    protected: dict[ClusterName, float] = field(default_factory=dict)
    cards: int = 100
    is_stocked_out: bool = False
    is_away: bool = False
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[Outcome]] = field(default_factory=set)
    made: int = 0

    def __post_init__(self) -> None:
        self.may_end.set()

    @property
    def cards_used(self) -> int:
        return sum(each.target * each.plan.kind.accelerators for each in self.fields.values())

    async def settle(self, ref: PoolRef) -> Outcome:
        await self.may_end.wait()
        there = self.fields[ref]
        there.is_busy = False
        del there.nodes[there.target :]
        if self.is_stocked_out and len(there.nodes) < there.target:
            return StockedOut(f"no {there.plan.kind.machine_type} is left in {there.plan.kind.zone}")
        while len(there.nodes) < there.target:
            self.made += 1
            there.nodes.append(f"{ref.pool}-{self.made}")
        return Done()


class HillsCloud:
    """One master's connection to the cloud."""

    def __init__(self, hills: Hills) -> None:
        self._hills = hills
        self._turns: dict[PoolRef, asyncio.Lock] = {}

    async def clusters(self) -> Sequence[ClusterInfo] | Unreachable | Refused:
        if self._hills.is_away:
            return AWAY
        return [self._info(plan) for plan in self._hills.clusters.values()]

    def _info(self, plan: ClusterPlan) -> ClusterInfo:
        own = PoolInfo(
            PoolRef(plan.name, "system"), plan.system.kind, plan.system.size, PoolStatus.RUNNING, plan.labels
        )
        pools = [
            PoolInfo(ref, each.plan.kind, each.target, PoolStatus.RUNNING, each.plan.labels)
            for ref, each in self._hills.fields.items()
            if ref.cluster == plan.name
        ]
        until = self._hills.protected.get(plan.name)
        status = ClusterStatus.RUNNING
        return ClusterInfo(
            plan.name, plan.location, True, plan.labels, (own, *pools), status=status, protected_until=until
        )

    async def create_cluster_with_node_pool(self, plan: ClusterPlan) -> Outcome:
        if self._hills.is_away:
            return AWAY
        if plan.name in self._hills.clusters:
            return AlreadyExists(f"there is a cluster {plan.name}")
        self._hills.clusters[plan.name] = plan
        return Done()

    async def delete_cluster(self, cluster: ClusterName) -> Outcome:
        gone = self._hills.clusters.pop(cluster, None)
        self._hills.fields = {ref: each for ref, each in self._hills.fields.items() if ref.cluster != cluster}
        return Done() if gone is not None else NotFound(f"there is no cluster {cluster}")

    async def protect_from_upgrades(self, cluster: ClusterName, until: float) -> Outcome:
        self._hills.protected[cluster] = until
        return Done()

    async def create_pool(self, cluster: ClusterName, plan: PoolPlan) -> Outcome:
        ref = PoolRef(cluster, plan.name)
        if self._hills.is_away:
            return AWAY
        if cluster not in self._hills.clusters:
            return NotFound(f"there is no cluster {cluster}")
        if ref in self._hills.fields:
            return AlreadyExists(f"there is a pool {plan.name}")
        refused = self._refused(plan.kind, plan.size)
        if refused is not None:
            return refused
        self._hills.fields[ref] = Field(plan, plan.size)
        async with self._turn(ref):
            return await self._work(ref)

    async def resize_pool(self, pool: PoolRef, size: int) -> Outcome:
        there = self._hills.fields.get(pool)
        if there is None:
            return NotFound(f"there is no pool {pool.pool}")
        async with self._turn(pool):
            refused = self._refused(there.plan.kind, size - there.target)
            if refused is not None:
                return refused
            if there.is_busy:
                return Busy(f"{pool.pool} is worked on")
            there.target = size
            return await self._work(pool)

    async def remove_nodes(self, pool: PoolRef, nodes: Sequence[str]) -> Outcome:
        there = self._hills.fields.get(pool)
        if there is None:
            return NotFound(f"there is no pool {pool.pool}")
        there.nodes = [name for name in there.nodes if name not in nodes]
        there.target -= len(nodes)
        return Done()

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        gone = self._hills.fields.pop(pool, None)
        return Done() if gone is not None else NotFound(f"there is no pool {pool.pool}")

    async def quotas(self, scope: str) -> Sequence[Quota] | Unreachable | Refused:
        metric = {REGION: CARDS, PROJECT: CARDS_EVERYWHERE}.get(scope)
        if metric is None:
            return Refused(f"there is no {scope}")
        used = min(self._hills.cards, self._hills.cards_used)
        return [Quota(QuotaKey(scope, metric), float(self._hills.cards), float(used))]

    def needs(self, plan: PoolPlan, quotas: Iterable[Quota]) -> Needs:
        keys = (QuotaKey(plan.kind.region, CARDS), QuotaKey(PROJECT, CARDS_EVERYWHERE))
        known = {quota.key for quota in quotas}
        return {key: plan.kind.accelerators for key in keys if key in known and plan.kind.accelerators}

    @property
    def quotas_page(self) -> str:
        return "https://hills.example/quotas"

    async def machines(self) -> Sequence[MachineInfo] | Unreachable | Refused:
        if self._hills.is_away:
            return AWAY
        return [
            MachineInfo(name, name, each.plan.kind, 1.0, each.plan.labels)
            for each in self._hills.fields.values()
            for name in each.nodes
        ]

    async def market(self) -> Sequence[MarketPrice] | Unreachable | Refused:
        return ()

    async def kubernetes_access(self, cluster: ClusterName) -> KubernetesAccess | Unreachable | Refused:
        if self._hills.is_away:
            return AWAY
        if cluster not in self._hills.clusters:
            return Refused(f"there is no cluster {cluster}")
        return KubernetesAccess(f"https://{cluster}.hills.example", "")

    async def access_token(self, cluster: ClusterName) -> str:
        return f"a-token-for-{cluster}"

    async def close(self) -> None:
        pass

    def _refused(self, kind: MachineKind, more: int) -> QuotaExceeded | None:
        wanted, left = more * kind.accelerators, self._hills.cards - self._hills.cards_used
        if wanted <= 0 or wanted <= left:
            return None
        short = Shortfall(CARDS_EVERYWHERE, is_regional=False, requested=wanted, available=left)
        return QuotaExceeded(f"the quota {CARDS_EVERYWHERE} has room for {left}", (short,), in_call=True)

    def _turn(self, ref: PoolRef) -> asyncio.Lock:
        return self._turns.setdefault(ref, asyncio.Lock())

    async def _work(self, ref: PoolRef) -> Outcome:
        """Continues if the caller stops waiting."""
        self._hills.fields[ref].is_busy = True
        task = asyncio.create_task(self._hills.settle(ref), name=f"hills/{ref.pool}")
        self._hills.tasks.add(task)
        return await asyncio.shield(task)


class HillsStage:
    """The stage for the contract of every cloud."""

    region = REGION

    def __init__(self) -> None:
        self.hills = Hills()
        self.cloud: Cloud = HillsCloud(self.hills)
        system = system_pool(ZONE, SYSTEM_MACHINE, 1)
        self.cluster = ClusterPlan(ClusterName("a-cluster"), ZONE, system, {FLEET_LABEL: "a-fleet"})
        kind = MachineKind(ZONE, MACHINE, "L4", 1, spot=True)
        self.pool = PoolPlan("a-pool", kind, 1, {JOB_LABEL: "a-job", FLEET_LABEL: "a-fleet"})

    async def another(self) -> Cloud:
        return HillsCloud(self.hills)

    async def nodes(self, pool: PoolRef) -> set[str]:
        return set(self.hills.fields[pool].nodes)

    async def stock_out(self, on: bool = True) -> None:
        self.hills.is_stocked_out = on

    async def take_quota(self) -> None:
        self.hills.cards = 0

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        self.hills.may_end.clear()
        yield
        self.hills.may_end.set()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self.hills.is_away = True
        yield
        self.hills.is_away = False


class HillsCloudSpec(CloudSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Literal["hills"]
    laird: str
    """A key that no other cloud has."""


class HillsFleet(Fleet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cloud: HillsCloudSpec
    system_pool: SystemPool = SystemPool(machine_type=SYSTEM_MACHINE)


class NoPriceList(Struct, frozen=True):
    name: str = "hills"
    every_s: float = 3600.0
    why_not: str = "the hills have no price list"

    async def fetch(self, offers: Iterable[CatalogOffer]) -> Sequence[Price]:
        return ()


class HillsProvider:
    fleet_type = HillsFleet

    def __init__(self, hills: Hills, usd_per_hour: float = 0.1) -> None:
        self._hills = hills
        self._price = MicroDollars(round(usd_per_hour * 1_000_000))

    def problems(self, fleet: HillsFleet) -> Sequence[Problem]:
        return [] if fleet.cloud.laird else [("cloud.laird", "is nobody")]

    def placed(self, fleet: HillsFleet, folder: Path) -> HillsFleet:
        return fleet

    def load(self) -> None:
        pass

    async def open(self, fleet: HillsFleet, environ: Environ) -> Cloud:
        return HillsCloud(self._hills)

    def prices(self, fleet: HillsFleet, environ: Environ, cloud: Cloud) -> Prices:
        offer = CatalogOffer(
            ZONE, REGION, MACHINE, "L4", 1, 24, 8, 32, 16e9, self._price, MicroDollars(2 * self._price)
        )
        return Prices(Catalog((offer,), "2026-08-22", "the hills"), NoPriceList(), Path("/nowhere/hills.json"))

    def pull_hint(self, fleet: HillsFleet, environ: Environ) -> Callable[[str], str]:
        return lambda image: PULL_HINT if image.startswith("hills.example/") else ""

    def removal_command(self, fleet: HillsFleet, environ: Environ, machine: MachineInfo) -> str:
        return f"hills remove {machine.name}"
