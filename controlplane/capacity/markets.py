"""The market of each job, sent to its allocator on every change: prices, observations of zones, quotas.

Current prices come from the newest look at the cloud; the ledger uses the same looks. A planned job gets no market
before the first look, so that no plan uses list prices instead of current ones. If the first reads fail for a minute,
list prices are used until a read succeeds. Later, the prices of the last successful read stay in use while reads fail.
A job that is not planned gets its quotas only.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

from controlplane.allocator.offers import Offer
from controlplane.capacity.fleet_offers import coarse, limits_of, priced, repriced
from controlplane.capacity.price_policy import (
    UNSEEN_S,
    AnnounceCurrentPrices,
    AnnounceListPrices,
    Listed,
    PriceEffect,
    PriceEvent,
    PricesRead,
    PriceState,
    PricesUnread,
    decide,
)
from controlplane.capacity.quota_watch import QuotaWatch
from controlplane.catalog.links import Links
from controlplane.catalog.memory import Estimate, Memory, estimate
from controlplane.catalog.offers import Catalog
from controlplane.catalog.offers import Offer as CatalogOffer
from controlplane.clouds.interface import MarketPrice
from controlplane.clouds.observations import Look, Looks
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Quotas, market_of
from messages.events import FLEET, Event
from messages.ids import JobName
from runtime.clock import Clock
from runtime.logs import WhyLog, logger

Tell = Callable[[Market | Quotas], None]
"""Sends a planned job its market, and any other job what quotas leave."""
Seen = dict[tuple[str, str], Estimate]


@dataclass(frozen=True, slots=True)
class Moment:
    """The inputs of all jobs' markets, without quotas."""

    offers: tuple[CatalogOffer, ...]
    seen: Seen


@dataclass(slots=True)
class _Followed:
    criteria: Criteria | None
    """The criteria of a planned job; None for other jobs."""
    tell: Tell
    reported: Market | Quotas | None = None
    moment: Moment | None = None
    quotas: Quotas | None = None


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of machines and zones, without current prices."""

    offers: tuple[Offer, ...]
    """The fleet's offers."""
    catalog: Callable[[], Catalog]
    links: Links
    memory: Callable[[], Memory]


class Markets:
    def __init__(
        self,
        looks: Looks,
        knowledge: Knowledge,
        quotas: QuotaWatch,
        clock: Clock,
        announce: Callable[[Event], None],
        *,
        unseen_s: float = UNSEEN_S,
    ) -> None:
        self.links = knowledge.links
        self._looks = looks
        self._offers = knowledge.offers
        self._limits = limits_of(knowledge.offers)
        self._catalog = knowledge.catalog
        self._memory = knowledge.memory
        self._quotas = quotas
        self._clock = clock
        self._announce = announce
        self._unseen_s = unseen_s
        self._price_state = PriceState(clock.monotonic_s())
        self._followed: dict[JobName, _Followed] = {}
        self._looked: Moment | None = None
        """The inputs at the newest prices; None before prices were read."""
        self._unpriced = WhyLog(logger(), "market_not_seen")

    @property
    def has_prices(self) -> bool:
        """True if the price of any machine of the fleet is known. Without prices nothing can be planned."""
        return bool(priced(self._catalog(), self._offers))

    @property
    def _prices(self) -> tuple[MarketPrice, ...] | None:
        return self._price_state.prices

    @property
    def has_prices_of_the_moment(self) -> bool:
        return bool(self._prices)

    # Followers

    def follow(self, job: JobName, criteria: Criteria | None, tell: Tell) -> None:
        """Send the job its market now, if known, and on each change. `criteria`: None for a job that is not planned."""
        listed = self._price_state.listed
        if listed is not None and criteria is not None and job not in self._followed:
            self._announce_list_prices((job,), listed)
        self._followed[job] = _Followed(criteria, tell)
        self._quotas.look()
        self._tell(job, self._moment())

    def unfollow(self, job: JobName) -> None:
        self._followed.pop(job, None)

    # Queries

    def market(self, criteria: Criteria) -> Market:
        """The market of a job that does not exist yet. It includes what other jobs may give back."""
        return self._market(criteria, self._moment(), self._quotas.left_at_best())

    def offers(self) -> tuple[CatalogOffer, ...]:
        """The fleet's offers at the newest prices."""
        return (self._looked or self._moment()).offers

    def catalog(self) -> Catalog:
        """The whole catalog at current prices."""
        known = self._catalog()
        return Catalog(repriced(known.offers, self._prices or ()), known.date, known.source)

    # Reads

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._quotas.run(self._on_quotas_read), name="quotas")
            tasks.create_task(self._watch_prices(), name="prices-of-the-moment")

    async def _watch_prices(self) -> None:
        self._price_state, number = PriceState(self._clock.monotonic_s()), 0
        while True:
            look = await self._looks.next(number)
            number = look.number
            decision = decide(self._price_state, self._price_event(look), self._unseen_s)
            self._unpriced(decision.why)
            self._price_state = decision.state
            for effect in decision.effects:
                self._announce_prices(effect)
            await self._tell_all()

    def _price_event(self, look: Look) -> PriceEvent:
        now_s = self._clock.monotonic_s()
        if isinstance(look.prices, Unreachable | Refused):
            return PricesUnread(now_s, self._clock.wall_s(), look.prices.detail)
        return PricesRead(now_s, look.prices)

    def _announce_prices(self, effect: PriceEffect) -> None:
        match effect:
            case AnnounceListPrices(listed):
                self._announce_list_prices(self._concerned, listed)
            case AnnounceCurrentPrices(since):
                why = f"current prices can be read; list prices were used since {_time(since)}"
                self._announce_to(self._concerned, "market_prices_used", "plans use current prices", why, since)
            case _:
                assert_never(effect)

    @property
    def _concerned(self) -> tuple[str, ...]:
        """The scopes of events about prices: the fleet and all planned jobs."""
        return (FLEET, *(job for job, followed in self._followed.items() if followed.criteria is not None))

    def _announce_list_prices(self, scopes: Sequence[str], listed: Listed) -> None:
        text = list_prices_text(self._catalog().date, listed.since)
        self._announce_to(scopes, "list_prices_used", text, listed.why, listed.since)

    def _announce_to(self, scopes: Sequence[str], kind: str, text: str, why: str, since: float) -> None:
        for scope in scopes:
            self._announce(Event(scope, kind, text, why, {"since": round(since, 3)}))

    async def _on_quotas_read(self, after_refusal: bool) -> None:
        """Send quotas that changed. After a refusal send all, because a job may use the numbers of its refusal."""
        if after_refusal:
            for followed in self._followed.values():
                followed.reported = followed.quotas = None
        await self._tell_all()

    async def _tell_all(self) -> None:
        moment = self._moment()
        if self._prices is not None:
            self._looked = moment
        for job in tuple(self._followed):
            self._tell(job, moment)
            await asyncio.sleep(0)

    def _tell(self, job: JobName, moment: Moment) -> None:
        """Send the job its market if it has changed."""
        followed = self._followed.get(job)
        if followed is None or not self._quotas.is_read or self._quotas.is_outdated:
            return
        quotas, criteria = self._quotas.left_for(job), followed.criteria
        if criteria is None:
            self._pass_on(followed, quotas)
        elif self._prices is not None and (followed.moment, followed.quotas) != (moment, quotas):
            followed.moment, followed.quotas = moment, quotas
            self._pass_on(followed, self._market(criteria, moment, quotas))

    def _pass_on(self, followed: _Followed, facts: Market | Quotas) -> None:
        if facts != followed.reported:
            followed.reported = facts
            followed.tell(facts)

    def _moment(self) -> Moment:
        offers = repriced(priced(self._catalog(), self._offers), self._prices or ())
        return Moment(offers, self._seen(offers))

    def _seen(self, offers: Sequence[CatalogOffer]) -> Seen:
        memory, at = self._memory(), self._clock.wall_s()
        availability = {(offer.zone, offer.accelerator) for offer in offers}
        return {availability_key: coarse(estimate(memory, *availability_key, at)) for availability_key in availability}

    def _market(self, criteria: Criteria, moment: Moment, quotas: Quotas) -> Market:
        return market_of(
            criteria,
            moment.offers,
            self.links,
            seen=lambda zone, accelerator: moment.seen[zone, accelerator],
            limits=self._limits,
            quotas=quotas,
        )


def list_prices_text(date: str, since: float) -> str:
    """The text of the event that plans use the list prices of `date`; `since` in Unix seconds."""
    return f"plans use the list prices of {date}; current prices are missing since {_time(since)}"


def _time(wall_s: float) -> str:
    return f"{datetime.fromtimestamp(wall_s, UTC):%H:%M:%S} UTC"
