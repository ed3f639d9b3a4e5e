"""Where the machines of jobs come from, as the other parts of a master see it; and the case that there is no fleet."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import Place
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.shipped import shipped_catalog
from controlplane.catalog.views import offer_list
from controlplane.job.state import Want
from controlplane.planning.criteria import Criteria
from controlplane.throughput.profile import Profile
from controlplane.throughput.use import NodeUse
from messages.clusters import ClusterHeartbeat
from messages.ids import ClusterName, JobName
from messages.jobs import JobSpec
from messages.offers import OfferList
from runtime.clock import Clock

OnPlacement = Callable[[JobName, Place], None]
"""Told when a job's allocator has decided where its workers are to be."""
LastHeard = Callable[[ClusterName], float | None]
"""When the controller of a cluster was last heard, on the monotonic clock; None for a cluster that is not known."""


class CapacityAdvisor(Protocol):
    """What people and budgets ask of those who plan."""

    async def refusals(self, spec: JobSpec) -> list[tuple[str, str]]: ...

    async def refresh_quotas(self) -> None: ...

    def warning(self, spec: JobSpec) -> str: ...

    def dearest(self, criteria: Criteria) -> MicroDollars | None: ...

    def offers(self) -> OfferList: ...

    def list_prices(self) -> Catalog: ...


class JobCapacity(Protocol):
    @property
    def has_fleet(self) -> bool:
        """Machines are had from a cloud, and cost money."""

    @property
    def advisor(self) -> CapacityAdvisor: ...

    def hold(
        self,
        tasks: asyncio.TaskGroup,
        job: JobName,
        want: Want,
        *,
        demand: Demand | None = None,
        idle_timeout_s: float | None = None,
        measured_within_s: float = 0.0,
    ) -> None:
        """From now on there are machines for this job, or, if it has ended, soon none."""

    def want(self, job: JobName, want: Want) -> None:
        """What the job's core asked for last."""

    def let_go(self, job: JobName) -> None:
        """The job's allocator ends, and its machines stay as they are."""

    def is_settled(self, job: JobName) -> bool:
        """The cloud holds nothing of it."""

    def see(self, topology: ClusterHeartbeat) -> None:
        """The whole state of a cluster."""

    def has_pools_in(self, cluster: ClusterName) -> bool: ...

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        """Name in the catalog; empty if unknown."""

    def measure(self, job: JobName, profile: Profile) -> None:
        """What the job's steps need, as its trainers say."""

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        """How much the job's nodes compute, as its trainers say."""


class NoAdvisor:
    """Nothing is planned: list prices are all that is known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._catalog: Catalog | None = None

    async def refusals(self, spec: JobSpec) -> list[tuple[str, str]]:
        return []

    async def refresh_quotas(self) -> None:
        pass

    def warning(self, spec: JobSpec) -> str:
        return ""

    def dearest(self, criteria: Criteria) -> MicroDollars | None:
        return None

    def offers(self) -> OfferList:
        return offer_list(self.list_prices(), None, self._clock.wall_s())

    def list_prices(self) -> Catalog:
        self._catalog = self._catalog or shipped_catalog()
        return self._catalog


class NoCapacity:
    """Of a master without a fleet: workers come from static clusters only."""

    has_fleet = False

    def __init__(self, clock: Clock) -> None:
        self.advisor: CapacityAdvisor = NoAdvisor(clock)

    def hold(
        self,
        tasks: asyncio.TaskGroup,
        job: JobName,
        want: Want,
        *,
        demand: Demand | None = None,
        idle_timeout_s: float | None = None,
        measured_within_s: float = 0.0,
    ) -> None:
        pass

    def want(self, job: JobName, want: Want) -> None:
        pass

    def let_go(self, job: JobName) -> None:
        pass

    def is_settled(self, job: JobName) -> bool:
        return True

    def see(self, topology: ClusterHeartbeat) -> None:
        pass

    def has_pools_in(self, cluster: ClusterName) -> bool:
        return False

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        return ""

    def measure(self, job: JobName, profile: Profile) -> None:
        pass

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        pass
