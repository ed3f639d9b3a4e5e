"""The prices that plans use: current prices, or list prices if current prices could never be read. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from controlplane.clouds.interface import MarketPrice
from runtime.decision import Decision

UNSEEN_S = 60.0
"""Seconds to wait for the first current prices."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The state in which plans use list prices."""

    since: float
    """Unix seconds from which current prices are missing."""
    why: str


@dataclass(frozen=True, slots=True)
class PriceState:
    began_s: float
    """Monotonic seconds when the wait for the first current prices began."""
    prices: tuple[MarketPrice, ...] | None = None
    """Current prices; None before the first read, empty if list prices apply."""
    listed: Listed | None = None
    """Set while plans use list prices because current prices could not be read."""


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
    """Unix seconds from which list prices were used."""


PriceEvent = PricesRead | PricesUnread
PriceEffect = AnnounceListPrices | AnnounceCurrentPrices


def decide(state: PriceState, event: PriceEvent, unseen_s: float = UNSEEN_S) -> Decision[PriceState, PriceEffect]:
    """Choose the prices after a read. Prices of an earlier read stay in use while reads fail."""
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
