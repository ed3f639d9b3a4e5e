"""Which prices plans are made at: current ones, or those of the list while no current ones could be read. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from controlplane.clouds.interface import MarketPrice
from runtime.decision import Decision

UNSEEN_S = 60.0
"""Seconds for which the first current prices are waited for."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Plans are made at list prices."""

    since: float
    """Unix seconds since when current prices are missing."""
    why: str


@dataclass(frozen=True, slots=True)
class PriceState:
    began_s: float
    """When the first current prices were waited for."""
    prices: tuple[MarketPrice, ...] | None = None
    """None while the first ones are waited for, and empty where those of the list hold."""
    listed: Listed | None = None
    """While list prices are used because current ones were never read."""


@dataclass(frozen=True, slots=True)
class PricesRead:
    at_s: float
    prices: Sequence[MarketPrice]


@dataclass(frozen=True, slots=True)
class PricesUnread:
    at_s: float
    at: float
    """The same moment in Unix seconds."""
    why: str


@dataclass(frozen=True, slots=True)
class AnnounceListPrices:
    listed: Listed


@dataclass(frozen=True, slots=True)
class AnnounceCurrentPrices:
    since: float
    """Unix seconds since when list prices had to do."""


PriceEvent = PricesRead | PricesUnread
PriceEffect = AnnounceListPrices | AnnounceCurrentPrices


def decide(state: PriceState, event: PriceEvent, unseen_s: float = UNSEEN_S) -> Decision[PriceState, PriceEffect]:
    """Prices that were read once stay in use while reads fail."""
    match event:
        case PricesRead(_, prices):
            known = replace(state, prices=tuple(prices), listed=None)
            if state.listed is None:
                return Decision(known)
            return Decision(known, (AnnounceCurrentPrices(state.listed.since),))
        case PricesUnread(at_s, at, why):
            if state.prices is not None:
                return Decision(state, why=why)
            if at_s < state.began_s + unseen_s:
                return Decision(state, why=why)
            listed = Listed(at - (at_s - state.began_s), why)
            return Decision(replace(state, prices=(), listed=listed), (AnnounceListPrices(listed),), why)
        case _:
            assert_never(event)
