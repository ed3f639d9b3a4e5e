"""What planned jobs need beside their allocators: the market, the memory of zones, and a thread that plans."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import structs

from controlplane.allocator.offers import Offer
from controlplane.allocator.state import Allocator
from controlplane.capacity.markets import Knowledge, Markets, Tell
from controlplane.capacity.planner import Planner
from controlplane.capacity.quotas import QuotaWatch, quota_views
from controlplane.capacity.remembering import Remembering
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.refresh import KnownPrices
from controlplane.catalog.shipped import shipped_links
from controlplane.catalog.views import offer_list
from controlplane.clouds.interface import Cloud, PoolPlan
from controlplane.clouds.observations import Looks
from controlplane.planning.criteria import Criteria, criteria_of
from controlplane.planning.market import is_allowed
from controlplane.planning.messages import IDLE_GPUS
from controlplane.planning.profiles import profile_of
from controlplane.planning.refusals import Problem, refusals, unfit, unplannable
from messages.criteria import Capacity
from messages.events import FLEET, Event
from messages.ids import JobName
from messages.jobs import JobSpec
from messages.offers import OfferList
from runtime.bus import Bucket
from runtime.clock import Clock


class Planning:
    def __init__(
        self,
        cloud: Cloud,
        looks: Looks,
        offers: tuple[Offer, ...],
        prices: KnownPrices,
        bucket: Bucket,
        clock: Clock,
        may_act: Callable[[], bool],
        announce: Callable[[Event], None],
        *,
        systems: Sequence[PoolPlan] = (),
    ) -> None:
        """`systems`: the clusters' own pools."""
        self.planner = Planner()
        self._clock = clock
        self._prices = prices
        self._announce = announce
        self._gpus = {offer.accelerators_per_node for offer in offers}
        self._allocators: Callable[[], dict[JobName, Allocator]] = dict
        self._remembering = Remembering(bucket, clock, may_act)
        self._quotas = QuotaWatch(cloud, offers, systems, lambda: self._allocators())
        self._refused_s: dict[JobName, float] = {}
        """When a request of each job was last refused for a quota."""
        self._markets = Markets(
            looks,
            Knowledge(offers, lambda: prices.catalog, shipped_links(), lambda: self._remembering.memory),
            self._quotas,
            clock,
            announce,
        )

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._prices.run(self._tell_old_prices), name="prices")
                tasks.create_task(self._markets.run(), name="markets")
                tasks.create_task(self._remembering.run(), name="memory-of-zones")
        finally:
            self.planner.close()

    def listen_to(self, allocators: Callable[[], dict[JobName, Allocator]]) -> None:
        """Quotas are for all jobs, planned or not."""
        self._allocators = allocators

    # For allocators

    @property
    def is_possible(self) -> bool:
        """A price is known of some machine of the fleet."""
        return self._markets.has_prices

    def follow(self, job: JobName, criteria: Criteria | None, tell: Tell) -> None:
        self._markets.follow(job, criteria, tell)

    def see(self, job: JobName, allocator: Allocator) -> None:
        self._remembering.see(job, allocator)
        refused_s = allocator.quota_refused_s
        if refused_s is not None and refused_s != self._refused_s.get(job):
            self._refused_s[job] = refused_s
            self._quotas.refused()

    def forget(self, job: JobName) -> None:
        self._markets.unfollow(job)
        self._remembering.forget(job)
        self._refused_s.pop(job, None)

    # For people and budgets

    async def refusals(self, spec: JobSpec) -> list[Problem]:
        """Why nothing that the fleet has can serve the job; without a plan, only that it fits on no machine."""
        if spec.capacity is None or not self.is_possible:
            return [*unplannable(spec.capacity or Capacity()), *unfit(spec, self._gpus)]
        await self.refresh_quotas()
        criteria, profile = criteria_of(spec), profile_of(spec)
        offers, market = self._markets.offers(), self._markets.market(criteria)
        return await self.planner.work(lambda: refusals(spec, criteria, offers, market, profile)) or []

    async def refresh_quotas(self) -> None:
        await self._quotas.refresh()

    def warning(self, spec: JobSpec) -> str:
        """What a person should know of a job that can be had; empty if there is nothing."""
        return IDLE_GPUS if any(self._gpus) and not spec.pod.gpu else ""

    def dearest(self, criteria: Criteria) -> MicroDollars | None:
        """An hour of the dearest machine that the job may be given, on demand."""
        prices = (offer.on_demand_micro_usd_per_hour for offer in self._markets.offers() if is_allowed(criteria, offer))
        return max((price for price in prices if price is not None), default=None)

    def offers(self) -> OfferList:
        known = offer_list(self._markets.catalog(), self._remembering.memory, self._clock.wall_s())
        quotas = self._quotas.left_at_best()
        return structs.replace(
            known,
            of_the_moment=self._markets.has_prices_of_the_moment,
            not_refreshed=self._prices.problem,
            quotas=quota_views(quotas),
            quotas_page=quotas.page,
        )

    def list_prices(self) -> Catalog:
        return self._prices.catalog

    def _tell_old_prices(self, why: str) -> None:
        catalog = self._prices.catalog
        text = f"the price list could not be refreshed; plans use the prices of {catalog.date} from {catalog.source}"
        self._announce(Event(FLEET, "prices_not_refreshed", text, why))
