"""Fetched prices, and a catalog that is updated with them.

A list never adds or removes an offer: the shipped data defines where machines exist. An implausible price is refused,
and the known one stays.
"""

from msgspec import Struct, structs

from controlplane.catalog.money import MicroDollars, usd_text
from controlplane.catalog.offers import Catalog, Offer

MOST_CHANGE = 4
"""The largest plausible factor of a price change: prices move by a third in a month, so more is a misread price."""


class Price(Struct, frozen=True):
    region: str
    machine_type: str
    accelerator: str
    spot: bool
    micro_usd_per_hour: MicroDollars


class PriceList(Struct, frozen=True):
    date: str
    source: str
    prices: tuple[Price, ...]


class Repriced(Struct, frozen=True):
    catalog: Catalog
    changed: int
    """Number of prices that changed."""
    refused: tuple[str, ...]
    """One message for each refused price."""


def reprice(catalog: Catalog, fetched: PriceList) -> Repriced:
    known = {
        (price.region, price.machine_type, price.accelerator, price.spot): price.micro_usd_per_hour
        for price in fetched.prices
    }
    refused: dict[str, None] = {}
    offers = tuple(_repriced(offer, known, refused) for offer in catalog.offers)
    changed = sum(_prices_differ(old, new) for old, new in zip(catalog.offers, offers, strict=True))
    dated = Catalog(offers, fetched.date, fetched.source)
    return Repriced(dated, changed, tuple(refused))


def _repriced(offer: Offer, known: dict[tuple[str, str, str, bool], MicroDollars], refused: dict[str, None]) -> Offer:
    what = (offer.region, offer.machine_type, offer.accelerator)
    spot = _price(offer, "spot", offer.spot_micro_usd_per_hour, known.get((*what, True)), refused)
    on_demand = _price(offer, "on demand", offer.on_demand_micro_usd_per_hour, known.get((*what, False)), refused)
    if spot is not None and on_demand is not None and spot > on_demand:
        refused[f"{_named(offer)} would cost more as spot than on demand."] = None
        return offer
    return structs.replace(offer, spot_micro_usd_per_hour=spot, on_demand_micro_usd_per_hour=on_demand)


def _price(
    offer: Offer, how: str, old: MicroDollars | None, new: MicroDollars | None, refused: dict[str, None]
) -> MicroDollars | None:
    if new is None:
        return old
    if new <= 0 or (old is not None and not old <= new * MOST_CHANGE <= old * MOST_CHANGE * MOST_CHANGE):
        before = f", it was {usd_text(old)}" if old is not None else ""
        refused[f"{_named(offer)} cannot cost {usd_text(new)} USD an hour {how}{before}."] = None
        return old
    return new


def _prices_differ(old: Offer, new: Offer) -> int:
    pairs = (
        (old.spot_micro_usd_per_hour, new.spot_micro_usd_per_hour),
        (old.on_demand_micro_usd_per_hour, new.on_demand_micro_usd_per_hour),
    )
    return sum(before != after for before, after in pairs)


def _named(offer: Offer) -> str:
    return f"{offer.machine_type} with {offer.accelerator} in {offer.region}"
