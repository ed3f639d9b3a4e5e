"""The inputs of plans (market, quotas, memory of zones) and the thread that makes plans."""

import asyncio
from collections.abc import Callable

from controlplane.allocator.state import Allocator
from controlplane.capacity.advisor import PlanningAdvisor, PricedFleet
from controlplane.capacity.markets import Knowledge, Markets, Tell
from controlplane.capacity.planner import Planner
from controlplane.capacity.quota_watch import QuotaWatch
from controlplane.capacity.remembering import Remembering
from controlplane.catalog.shipped import shipped_links
from controlplane.clouds.interface import Cloud
from controlplane.clouds.observations import Looks
from controlplane.planning.criteria import Criteria
from messages.events import FLEET, Event
from messages.ids import JobName
from runtime.bus import Bucket
from runtime.clock import Clock


class PlanInputs:
    def __init__(
        self,
        cloud: Cloud,
        looks: Looks,
        fleet: PricedFleet,
        bucket: Bucket,
        clock: Clock,
        may_act: Callable[[], bool],
        announce: Callable[[Event], None],
    ) -> None:
        self.planner = Planner()
        self._prices = prices = fleet.prices
        self._announce = announce
        self._allocators: Callable[[], dict[JobName, Allocator]] = dict
        self._remembering = Remembering(bucket, clock, may_act)
        self._quotas = QuotaWatch(cloud, fleet.offers, fleet.systems, lambda: self._allocators())
        self._refused_s: dict[JobName, float] = {}
        """Monotonic seconds when a quota last refused a request of each job."""
        self._markets = Markets(
            looks,
            Knowledge(fleet.offers, lambda: prices.catalog, shipped_links(), lambda: self._remembering.memory),
            self._quotas,
            clock,
            announce,
        )
        self.advisor = PlanningAdvisor(fleet, self._markets, self._quotas, self._remembering, self.planner, clock)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._prices.run(self._tell_old_prices), name="prices")
                tasks.create_task(self._markets.run(), name="markets")
                tasks.create_task(self._remembering.run(), name="memory-of-zones")
        finally:
            self.planner.close()

    def listen_to(self, allocators: Callable[[], dict[JobName, Allocator]]) -> None:
        """Set the source of all allocators; quotas concern all jobs, planned or not."""
        self._allocators = allocators

    @property
    def is_possible(self) -> bool:
        """True if the price of any machine of the fleet is known."""
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

    def _tell_old_prices(self, why: str) -> None:
        catalog = self._prices.catalog
        text = f"the price list could not be refreshed; plans use the prices of {catalog.date} from {catalog.source}"
        self._announce(Event(FLEET, "prices_not_refreshed", text, why))
