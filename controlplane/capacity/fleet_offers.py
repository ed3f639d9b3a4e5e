"""The fleet's offers with prices and limits, as input of a plan."""

from collections.abc import Iterable

from msgspec import structs

from controlplane.allocator.offers import Offer
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.memory import Estimate
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.offers import Offer as CatalogOffer
from controlplane.clouds.interface import MarketPrice

DIGITS = 2
"""Digits of an estimate about a zone. Estimates drift all the time, and every change causes a new plan."""


def priced(catalog: Catalog, offers: Iterable[Offer]) -> tuple[CatalogOffer, ...]:
    """The fleet's offers that the catalog has with the same number of GPUs."""
    found: dict[CatalogOffer, None] = {}
    for offer in offers:
        known = catalog.find_kind(offer.kind)
        if known is not None:
            found[known] = None
    return tuple(found)


def limits_of(offers: Iterable[Offer]) -> dict[MachineKind, int]:
    limits: dict[MachineKind, int] = {}
    for offer in offers:
        choice = offer.kind
        limits[choice] = limits.get(choice, 0) + offer.max_nodes
    return limits


def repriced(offers: Iterable[CatalogOffer], prices: Iterable[MarketPrice]) -> tuple[CatalogOffer, ...]:
    """The offers at current prices, or at list prices if they have no current price."""
    known = {(price.zone, price.accelerator): price for price in prices}
    return tuple(_repriced(offer, known.get((offer.zone, offer.accelerator))) for offer in offers)


def _repriced(offer: CatalogOffer, price: MarketPrice | None) -> CatalogOffer:
    if price is None:
        return offer
    return structs.replace(
        offer,
        spot_micro_usd_per_hour=MicroDollars(price.spot_micro_usd_per_hour * offer.gpus),
        on_demand_micro_usd_per_hour=MicroDollars(price.on_demand_micro_usd_per_hour * offer.gpus),
    )


def coarse(seen: Estimate) -> Estimate:
    return Estimate(
        availability=max(0.01, round(seen.availability, DIGITS)),
        mean_lifetime_s=float(f"{seen.mean_lifetime_s:.{DIGITS}g}"),
        boot_s=float(f"{seen.boot_s:.{DIGITS}g}"),
        observations=0.0,
    )
