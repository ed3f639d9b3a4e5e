"""Money as a whole number of micro-dollars: sums are exact, and price lists are not finer."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated, NewType

from msgspec import Meta

MicroDollars = NewType("MicroDollars", int)
UsdText = Annotated[
    str, Meta(pattern=r"^\d{1,6}(\.\d{1,6})?\Z", description="dollars as text with at most 6 decimals, e.g. '1.25'")
]
"""Dollars in a file are text, because a JSON number would become a float."""

MICRO_PER_USD = 1_000_000
NANO_PER_MICRO = 1_000


def micro_dollars(usd: str) -> MicroDollars:
    return MicroDollars(int(Decimal(usd) * MICRO_PER_USD))


def micro_of(usd: float) -> MicroDollars:
    """Micro-dollars from a number that a person wrote."""
    return micro_dollars(repr(usd))


def from_nano_dollars(nano_usd: int) -> MicroDollars:
    return MicroDollars((nano_usd + NANO_PER_MICRO // 2) // NANO_PER_MICRO)


def usd_text(amount: int, decimals: int = 4) -> str:
    """Text for people, such as `1.2500`."""
    exact = Decimal(amount) / MICRO_PER_USD
    return str(exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP))
