"""What one look at a cloud finds: machines and prices of the same moment."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.clouds.interface import Cloud, MachineInfo, MarketPrice
from controlplane.clouds.outcomes import Refused, Unreachable

PRICES_S = 20.0
"""Seconds after which a look does without prices."""


@dataclass(frozen=True, slots=True)
class Look:
    number: int
    at: float
    """Unix seconds when it began: what it shows was so no earlier."""
    machines: Sequence[MachineInfo] | Unreachable | Refused
    prices: Sequence[MarketPrice] | Unreachable | Refused


class Looks(Protocol):
    """A row of looks at the cloud, the same for all who follow it."""

    async def next(self, after: int) -> Look:
        """The newest look, as soon as its number is larger than `after`."""


async def look_at(cloud: Cloud, at: float, number: int = 1) -> Look:
    """Machines and prices are read at the same time; `at` is now, in Unix seconds."""
    machines, prices = await asyncio.gather(cloud.machines(), _prices(cloud))
    return Look(number, at, machines, prices)


async def _prices(cloud: Cloud) -> Sequence[MarketPrice] | Unreachable | Refused:
    try:
        async with asyncio.timeout(PRICES_S):
            return await cloud.market()
    except TimeoutError:
        return Unreachable(f"current prices were not read within {PRICES_S:g} s")
