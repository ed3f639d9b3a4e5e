"""The result of one look at a cloud: machines and prices of the same moment."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.clouds.interface import Cloud, MachineInfo, MarketPrice
from controlplane.clouds.outcomes import Refused, Unreachable

PRICES_S = 20.0
"""Seconds after which a look stops waiting for prices."""


@dataclass(frozen=True, slots=True)
class Look:
    number: int
    at: float
    """Unix seconds when the look began. Everything in it was read later."""
    machines: Sequence[MachineInfo] | Unreachable | Refused
    prices: Sequence[MarketPrice] | Unreachable | Refused


class Looks(Protocol):
    """A sequence of looks at the cloud, shared by all readers."""

    async def next(self, after: int) -> Look:
        """Wait for a look with a number larger than `after`, and return the newest."""


async def look_at(cloud: Cloud, at: float, number: int = 1) -> Look:
    """Read machines and prices at the same time. `at` is the current time in Unix seconds."""
    machines, prices = await asyncio.gather(cloud.machines(), _prices(cloud))
    return Look(number, at, machines, prices)


async def _prices(cloud: Cloud) -> Sequence[MarketPrice] | Unreachable | Refused:
    try:
        async with asyncio.timeout(PRICES_S):
            return await cloud.market()
    except TimeoutError:
        return Unreachable(f"current prices were not read within {PRICES_S:g} s")
