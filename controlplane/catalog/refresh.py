"""The newest known catalog: shipped prices, then stored ones of an earlier run, then newly fetched ones.

No caller waits: `recall` reads a file, and `run` fetches in the background. After an error the known prices stay. A
provider implements `PriceSource`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from controlplane.catalog import cache
from controlplane.catalog.offers import Catalog, Offer
from controlplane.catalog.price_list import Price, PriceList, reprice
from runtime.errors import Permanent, Temporary
from runtime.logs import logger

AGAIN_S = 900.0
LEAST_SHARE = 0.5
"""The least share of the known prices that a fetched list must have: a shorter list is not trusted."""
REPORTED_AT_MOST = 5

OnChange = Callable[[Catalog], None]
OnProblem = Callable[[str], None]
Rest = Callable[[float], Awaitable[None]]


class PricesAway(Temporary):
    """The price list could not be fetched now."""


class PricesRefused(Permanent):
    """The cloud refuses, or the answer is not a price list: a person must act."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class PriceSource(Protocol):
    """A cloud's price list."""

    @property
    def name(self) -> str:
        """The location of the list, for people."""

    @property
    def every_s(self) -> float:
        """Seconds between two fetches."""

    @property
    def why_not(self) -> str:
        """Why nothing can be fetched; empty if it can."""

    async def fetch(self, offers: Iterable[Offer]) -> Sequence[Price]:
        """Raises `PricesAway` or `PricesRefused`."""


class KnownPrices(Protocol):
    """Prices of one cloud, or of all clouds of a fleet."""

    @property
    def catalog(self) -> Catalog:
        """The newest known catalog; always usable."""

    @property
    def problem(self) -> str:
        """Why the last refresh failed; empty if it succeeded."""

    async def run(self, on_problem: OnProblem) -> None:
        """Runs until cancelled, or returns if nothing can be fetched."""


class Prices:
    """Prices of one cloud. `catalog` is always usable."""

    def __init__(
        self,
        shipped: Catalog,
        source: PriceSource,
        cache_file: Path,
        *,
        on_change: OnChange = lambda catalog: None,
        rest: Rest = asyncio.sleep,
    ) -> None:
        self._shipped = shipped
        self._source = source
        self._cache = cache_file
        self._on_change = on_change
        self._rest = rest
        self._log = logger()
        self.catalog = shipped
        self.problem = ""
        """Why the last refresh failed; empty if it succeeded."""

    def recall(self) -> None:
        """Use the stored prices, unless the shipped ones are newer."""
        found = cache.load(self._cache)
        if isinstance(found, str):
            self._fail(found)
        elif found is not None and found.date >= self._shipped.date:
            self.catalog = reprice(self._shipped, found).catalog

    async def run(self, on_problem: OnProblem = lambda problem: None) -> None:
        """Run until cancelled; return at once if nothing can be fetched. Calls `on_problem` once per new reason."""
        if self._source.why_not:
            self.problem = self._source.why_not
            return
        reported = ""
        while True:
            refreshed = await self.refresh()
            if self.problem not in ("", reported):
                on_problem(self.problem)
            reported = self.problem
            await self._rest(self._source.every_s if refreshed else min(AGAIN_S, self._source.every_s))

    async def refresh(self) -> bool:
        """Fetch once; returns whether the prices were refreshed."""
        try:
            prices = await self._source.fetch(self._shipped.offers)
        except PricesRefused as error:
            return self._fail(f"{error} {error.hint}".rstrip())
        except PricesAway as error:
            return self._fail(str(error))
        known = len({(offer.region, offer.machine_type, offer.accelerator) for offer in self._shipped.offers}) * 2
        if len(prices) < known * LEAST_SHARE:
            return self._fail(f"{self._source.name} has only {len(prices)} of {known} wanted prices.")
        return await self._learn(PriceList(datetime.now(UTC).date().isoformat(), self._source.name, tuple(prices)))

    async def _learn(self, fetched: PriceList) -> bool:
        repriced = reprice(self._shipped, fetched)
        for message in repriced.refused[:REPORTED_AT_MOST]:
            self._log.warning("price_refused", why=message)
        unsaved = await asyncio.to_thread(cache.save, self._cache, fetched)
        if unsaved:
            self._log.warning("prices_not_saved", why=unsaved)
        self._log.info("prices_refreshed", prices=len(fetched.prices), changed=repriced.changed)
        self.catalog = repriced.catalog
        self.problem = ""
        self._on_change(self.catalog)
        return True

    def _fail(self, message: str) -> bool:
        if message != self.problem:
            self._log.warning("prices_not_refreshed", using=f"prices of {self.catalog.date}", why=message)
        self.problem = message
        return False


class PricesOfSeveral:
    """The prices of several clouds as one catalog."""

    def __init__(self, prices: Sequence[Prices]) -> None:
        self._prices = prices
        self._parts: list[Catalog] = []
        self._catalog = Catalog((), "", "")

    @property
    def catalog(self) -> Catalog:
        parts = [each.catalog for each in self._prices]
        if parts != self._parts:
            offers = {offer.kind(spot=True): offer for part in parts for offer in part.offers}
            sources = " and ".join(dict.fromkeys(part.source for part in parts))
            self._parts = parts
            self._catalog = Catalog(tuple(offers.values()), min(part.date for part in parts), sources)
        return self._catalog

    @property
    def problem(self) -> str:
        return " ".join(each.problem for each in self._prices if each.problem)

    async def run(self, on_problem: OnProblem) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self._prices:
                tasks.create_task(each.run(on_problem), name="prices-of-a-cloud")
