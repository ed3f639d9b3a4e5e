"""Answers about a fleet with known prices: what it offers, what that costs, and why it cannot serve a job."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from controlplane.allocator.offers import Offer
from controlplane.capacity.markets import Markets
from controlplane.capacity.planner import Planner
from controlplane.capacity.quota_watch import QuotaWatch
from controlplane.capacity.quotas import quota_views
from controlplane.capacity.remembering import Remembering
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.refresh import KnownPrices
from controlplane.catalog.views import offer_list
from controlplane.clouds.interface import PoolPlan
from controlplane.planning.criteria import Criteria, criteria_of
from controlplane.planning.explanations import IDLE_GPUS
from controlplane.planning.market import is_allowed
from controlplane.planning.profiles import profile_of
from controlplane.planning.refusals import Problem, refusals, unfit, unplannable
from messages.criteria import Capacity
from messages.jobs import JobSpec
from messages.offers import OfferList
from runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class PricedFleet:
    """The machines that the fleet may have, and their prices."""

    offers: tuple[Offer, ...]
    prices: KnownPrices
    systems: Sequence[PoolPlan] = ()
    """The system pools of the clusters."""


class PlanningAdvisor:
    def __init__(
        self,
        fleet: PricedFleet,
        markets: Markets,
        quotas: QuotaWatch,
        remembering: Remembering,
        planner: Planner,
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._markets = markets
        self._quotas = quotas
        self._remembering = remembering
        self._planner = planner
        self._clock = clock
        self._gpus = {offer.accelerators_per_node for offer in fleet.offers}

    async def refusals(self, spec: JobSpec) -> list[Problem]:
        """The reasons why the fleet cannot serve the job. Without a plan, only that the job fits on no machine."""
        if spec.capacity is None or not self._markets.has_prices:
            return [*unplannable(spec.capacity or Capacity()), *unfit(spec, self._gpus)]
        await self._quotas.refresh()
        criteria, profile = criteria_of(spec), profile_of(spec)
        offers, market = self._markets.offers(), self._markets.market(criteria)
        return await self._planner.work(lambda: refusals(spec, criteria, offers, market, profile)) or []

    async def refresh_quotas(self) -> None:
        await self._quotas.refresh()

    def warning(self, spec: JobSpec) -> str:
        """A warning about a job that the fleet can serve; may be empty."""
        return IDLE_GPUS if any(self._gpus) and not spec.pod.gpu else ""

    def dearest(self, criteria: Criteria) -> MicroDollars | None:
        """The highest on-demand price for an hour among the machines that the job may get."""
        prices = (offer.on_demand_micro_usd_per_hour for offer in self._markets.offers() if is_allowed(criteria, offer))
        return max((price for price in prices if price is not None), default=None)

    def offers(self) -> OfferList:
        known = offer_list(self._markets.catalog(), self._remembering.memory, self._clock.wall_s())
        quotas = self._quotas.left_at_best()
        return structs.replace(
            known,
            of_the_moment=self._markets.has_prices_of_the_moment,
            not_refreshed=self._fleet.prices.problem,
            quotas=quota_views(quotas),
            quotas_page=quotas.page,
        )

    def list_prices(self) -> Catalog:
        return self._fleet.prices.catalog
