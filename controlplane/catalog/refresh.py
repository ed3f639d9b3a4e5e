"""The catalog as it is known just now: what was shipped, then what was last fetched, then what is fetched.

Nothing waits for it: `open_prices` reads a file, and `run` fetches in its own time. Whatever goes wrong leaves the
prices that are known.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp

from controlplane.catalog import cache
from controlplane.catalog.billing import parts_of, prices_of
from controlplane.catalog.fetching import Account, PricesAway, PriceSettings, PricesRefused, Rest, fetch_skus
from controlplane.catalog.offers import Catalog
from controlplane.catalog.price_list import PriceList, reprice
from runtime.logs import logger
from runtime.paths import current_folder, placed

AGAIN_S = 900.0
LEAST_SHARE = 0.5
"""Of the prices that are known, what a list must have to be believed: a list of a few is a wrong one."""
TOLD_AT_MOST = 5

OnChange = Callable[[Catalog], None]
OnProblem = Callable[[str], None]


class Prices:
    """`catalog` is always one that can be planned with."""

    def __init__(
        self,
        shipped: Catalog,
        settings: PriceSettings,
        *,
        account: Account | None = None,
        on_change: OnChange = lambda catalog: None,
        rest: Rest = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._shipped = shipped
        self._account = account
        self._on_change = on_change
        self._rest = rest
        given = settings.cache
        self._cache = placed(given, current_folder(), "TRADEWIND_PRICES_CACHE") if given else cache.default_cache()
        self._log = logger()
        self.catalog = shipped
        self.problem = ""
        """Why the last refresh changed nothing; empty if it did its work."""

    def recall(self) -> None:
        """What was fetched before, unless the data that came with the program is newer."""
        found = cache.load(self._cache)
        if isinstance(found, str):
            self._fail(found)
        elif found is not None and found.date >= self._shipped.date:
            self.catalog = reprice(self._shipped, found).catalog

    async def run(self, on_problem: OnProblem = lambda problem: None) -> None:
        """Runs until cancelled; returns at once without credentials. `on_problem` is called once per new reason."""
        if not (self._settings.api_key or self._settings.token or self._account):
            self.problem = "neither a key nor a token is set; set TRADEWIND_PRICES_API_KEY to refresh them."
            return
        async with aiohttp.ClientSession(trust_env=True) as session:
            told = ""
            while True:
                refreshed = await self.refresh(session)
                if self.problem not in ("", told):
                    on_problem(self.problem)
                told = self.problem
                await self._rest(self._settings.every_s if refreshed else min(AGAIN_S, self._settings.every_s))

    async def refresh(self, session: aiohttp.ClientSession) -> bool:
        """Once. False if nothing came of it."""
        try:
            skus = await fetch_skus(session, self._settings, account=self._account, rest=self._rest)
        except PricesRefused as error:
            return self._fail(f"{error} {error.hint}".rstrip())
        except PricesAway as error:
            return self._fail(str(error))
        prices = prices_of(parts_of(skus), self._shipped.offers)
        known = len({(offer.region, offer.machine_type, offer.accelerator) for offer in self._shipped.offers}) * 2
        if len(prices) < known * LEAST_SHARE:
            return self._fail(f"{self._settings.url} has only {len(prices)} of {known} prices that are wanted.")
        return await self._learn(PriceList(datetime.now(UTC).date().isoformat(), self._settings.url, prices))

    async def _learn(self, fetched: PriceList) -> bool:
        repriced = reprice(self._shipped, fetched)
        for sentence in repriced.refused[:TOLD_AT_MOST]:
            self._log.warning("price_refused", why=sentence)
        unsaved = await asyncio.to_thread(cache.save, self._cache, fetched)
        if unsaved:
            self._log.warning("prices_not_saved", why=unsaved)
        self._log.info("prices_refreshed", prices=len(fetched.prices), changed=repriced.changed)
        self.catalog = repriced.catalog
        self.problem = ""
        self._on_change(self.catalog)
        return True

    def _fail(self, sentence: str) -> bool:
        if sentence != self.problem:
            self._log.warning("prices_not_refreshed", using=f"prices of {self.catalog.date}", why=sentence)
        self.problem = sentence
        return False


def open_prices(
    shipped: Catalog,
    settings: PriceSettings,
    *,
    account: Account | None = None,
    on_change: OnChange = lambda catalog: None,
    rest: Rest = asyncio.sleep,
) -> Prices:
    prices = Prices(shipped, settings, account=account, on_change=on_change, rest=rest)
    prices.recall()
    return prices
