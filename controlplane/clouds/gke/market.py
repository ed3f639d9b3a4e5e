"""Current prices from a page with a JSON list of `MarketPrice`.

Google has no such page: its spot prices are in a list that changes at most once a month.
"""

from dataclasses import replace
from typing import Annotated

import aiohttp
from msgspec import Meta

from controlplane.catalog.accelerators import canonical
from controlplane.clouds.gke.failures import CallFailed, Code
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.clouds.interface import MarketPrice
from messages.decoding import Undecodable, decode

Prices = Annotated[list[MarketPrice], Meta(max_length=100_000)]
MAX_MICRO_USD = 10**15


class MarketClient:
    def __init__(self, settings: GkeSettings) -> None:
        self._url = settings.market_url
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=settings.call_s),
            trust_env=True,  # the proxies that grpc and google-auth use
        )

    async def prices(self) -> list[MarketPrice]:
        """Raises `CallFailed`."""
        if not self._url:
            return []
        try:
            async with self._session.get(self._url) as response:
                payload = await response.read()
        except TimeoutError:
            raise CallFailed(Code.DEADLINE_EXCEEDED, f"{self._url} did not answer with prices in time") from None
        except aiohttp.ClientError as error:
            raise CallFailed(Code.UNAVAILABLE, f"cannot read prices from {self._url}: {error}") from None
        if response.status != 200:
            raise CallFailed(Code.UNAVAILABLE, f"cannot read prices from {self._url}: status {response.status}")
        try:
            prices = decode(payload, Prices)
        except Undecodable as error:
            raise CallFailed(Code.INVALID_ARGUMENT, f"{self._url} has no valid list of prices: {error}") from None
        return [replace(price, accelerator=canonical(price.accelerator)) for price in prices if _is_valid(price)]

    async def close(self) -> None:
        await self._session.close()


def _is_valid(price: MarketPrice) -> bool:
    amounts = (price.spot_micro_usd_per_hour, price.on_demand_micro_usd_per_hour)
    return all(0 <= amount <= MAX_MICRO_USD for amount in amounts)
