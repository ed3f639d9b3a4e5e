"""What a market says as time goes by: from now on this much, at this price."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta

from simulator.market.accelerators import MicroUsd

Usd = Annotated[float, Meta(ge=0, le=1_000_000)]
Amount = Annotated[int, Meta(ge=0, le=1_000_000)]
NoticeSeconds = Annotated[float, Meta(ge=0, le=86_400)]
"""As long as a region takes it for."""


class Market(NamedTuple):
    zone: str
    accelerator: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.accelerator}"


@dataclass(frozen=True, slots=True)
class Change:
    at_s: float
    """Since the market opened."""
    market: Market
    capacity: int | None = None
    """Accelerators that spot nodes may hold; None: as before."""
    price: MicroUsd | None = None
    """Of one accelerator for an hour; None: as before."""
    notice_s: float | None = None
    """What the nodes that this change takes are given; None: as usual."""
