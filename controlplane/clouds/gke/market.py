"""Prices that move, where somebody tells them: a page with a JSON list of `MarketPrice`.

Google's own spot prices are those of a list that changes once a month at most: there is no such page of Google's.
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
DEAREST = 10**15


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
            raise CallFailed(Code.DEADLINE_EXCEEDED, f"Prices were not told in time at {self._url}") from None
        except aiohttp.ClientError as error:
            raise CallFailed(Code.UNAVAILABLE, f"Prices cannot be had at {self._url}: {error}") from None
        if response.status != 200:
            raise CallFailed(Code.UNAVAILABLE, f"Prices cannot be had at {self._url}: it answers {response.status}")
        try:
            prices = decode(payload, Prices)
        except Undecodable as error:
            raise CallFailed(Code.INVALID_ARGUMENT, f"{self._url} tells no prices: {error}") from None
        return [replace(price, accelerator=canonical(price.accelerator)) for price in prices if _is_honest(price)]

    async def close(self) -> None:
        await self._session.close()


def _is_honest(price: MarketPrice) -> bool:
    return all(0 <= amount <= DEAREST for amount in (price.spot_micro_usd_per_hour, price.on_demand_micro_usd_per_hour))
