"""The interface through which other parts of a master get machines for jobs, and its implementation without a fleet."""

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
"""Called when a job's allocator has decided how many workers run in each cluster."""
LastHeard = Callable[[ClusterName], float | None]
"""The monotonic time when a cluster's controller was last heard; None for an unknown cluster."""


class CapacityAdvisor(Protocol):
    """Answers about offers, prices and refusals, for people and budgets."""

    async def refusals(self, spec: JobSpec) -> list[tuple[str, str]]:
        """Returns why the job cannot be served, as pairs of a field and a message; empty if it can."""

    async def refresh_quotas(self) -> None: ...

    def warning(self, spec: JobSpec) -> str:
        """Returns a warning about a job that can be served; may be empty."""

    def dearest(self, criteria: Criteria) -> MicroDollars | None:
        """Returns the highest on-demand price for an hour of the machines that the job may get; None if unknown."""

    def offers(self) -> OfferList: ...

    def list_prices(self) -> Catalog: ...


class JobCapacity(Protocol):
    """Provides machines for jobs: one allocator for each job."""

    @property
    def has_fleet(self) -> bool:
        """True if machines come from a cloud and cost money."""

    @property
    def advisor(self) -> CapacityAdvisor: ...

    def start_allocator(
        self,
        tasks: asyncio.TaskGroup,
        job: JobName,
        want: Want,
        *,
        demand: Demand | None = None,
        idle_timeout_s: float | None = None,
        measured_within_s: float = 0.0,
    ) -> None:
        """Starts the job's allocator, which requests machines, or removes them if the job has ended.

        The first plan of a job that already trains waits for measured steps, at most `measured_within_s`.
        """

    def want(self, job: JobName, want: Want) -> None:
        """Passes the newest request of the job's core to its allocator."""

    def stop_allocator(self, job: JobName) -> None:
        """Stops the job's allocator. The job's machines stay."""

    def is_settled(self, job: JobName) -> bool:
        """True if the job has no allocator: it has ended and has no pools, or there is no fleet."""

    def hear_heartbeat(self, heartbeat: ClusterHeartbeat) -> None:
        """Passes the whole state of a cluster to all allocators."""

    def has_pools_in(self, cluster: ClusterName) -> bool:
        """True if a job has a pool in the cluster."""

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        """Returns the catalog's name of a node's accelerator; empty if unknown."""

    def measure(self, job: JobName, profile: Profile) -> None:
        """Passes what the job's steps need, as its trainers report, to its allocator."""

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        """Passes how much the job's nodes compute, as its trainers report, to its allocator."""


class NoAdvisor:
    """The advisor without planning, which knows only list prices and refuses no job."""

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
    """The capacity of a master without a fleet, whose workers come from static clusters only."""

    has_fleet = False

    def __init__(self, clock: Clock) -> None:
        self.advisor: CapacityAdvisor = NoAdvisor(clock)

    def start_allocator(
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

    def stop_allocator(self, job: JobName) -> None:
        pass

    def is_settled(self, job: JobName) -> bool:
        return True

    def hear_heartbeat(self, heartbeat: ClusterHeartbeat) -> None:
        pass

    def has_pools_in(self, cluster: ClusterName) -> bool:
        return False

    def accelerator_of(self, job: JobName, cluster: ClusterName, node: str) -> str:
        return ""

    def measure(self, job: JobName, profile: Profile) -> None:
        pass

    def use(self, job: JobName, use: tuple[NodeUse, ...]) -> None:
        pass
