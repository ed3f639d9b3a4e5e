"""What a fleet may have, in the words of the plan: its offers with prices, its limits, and what quotas leave over."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from controlplane.allocator.choices import choice_of
from controlplane.allocator.counting import at_most
from controlplane.allocator.offers import Offer
from controlplane.allocator.state import Allocator
from controlplane.catalog.accelerators import ACCELERATORS, BY_NAME, from_gke
from controlplane.catalog.memory import Estimate
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.catalog.offers import Offer as CatalogOffer
from controlplane.clouds.interface import MarketPrice, Quota
from controlplane.planning.market import Choice, QuotaKey

SPOT_QUOTA = "PREEMPTIBLE_"
DIGITS = 2
"""Of what was seen of a zone: it fades all the time, and a plan is made anew for every change."""

Gpus = Mapping[QuotaKey, int]


class Allowance(NamedTuple):
    gpus: int
    others: int
    """GPUs of the project that are not ours."""


def priced(catalog: Catalog, offers: Iterable[Offer]) -> tuple[CatalogOffer, ...]:
    """Of the fleet's offers those that the catalog has, with as many GPUs."""
    found: dict[CatalogOffer, None] = {}
    for offer in offers:
        accelerator = from_gke(offer.accelerator) if offer.accelerator is not None else None
        known = catalog.find(offer.zone, offer.machine_type, accelerator.name) if accelerator is not None else None
        if known is not None and known.gpus == offer.accelerators_per_node:
            found[known] = None
    return tuple(found)


def limits_of(offers: Iterable[Offer]) -> dict[Choice, int]:
    limits: dict[Choice, int] = {}
    for offer in offers:
        choice = choice_of(offer)
        limits[choice] = limits.get(choice, 0) + offer.max_nodes
    return limits


def repriced(offers: Iterable[CatalogOffer], prices: Iterable[MarketPrice]) -> tuple[CatalogOffer, ...]:
    """At the prices of the moment, where they move; else those of the list."""
    known = {(price.zone, price.accelerator): price for price in prices}
    return tuple(_repriced(offer, known.get((offer.zone, BY_NAME[offer.accelerator].gke))) for offer in offers)


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


def allowances_of(region: str, quotas: Sequence[Quota], ours: Gpus) -> dict[QuotaKey, Allowance]:
    """A quota of 0 for spot machines says nothing: who never asked for one uses that of machines on demand."""
    by_metric = {quota.metric: quota for quota in quotas}
    found: dict[QuotaKey, Allowance] = {}
    for accelerator in ACCELERATORS:
        for spot in (True, False):
            quota = by_metric.get((SPOT_QUOTA if spot else "") + accelerator.quota)
            if quota is not None and (quota.limit > 0 or not spot):
                key = QuotaKey(region, accelerator.name, spot)
                found[key] = Allowance(int(quota.limit), max(0, int(quota.usage) - ours.get(key, 0)))
    return found


def left_for(allowances: Mapping[QuotaKey, Allowance], used: Gpus) -> dict[QuotaKey, int]:
    """For one job, beside what the others have."""
    return {key: max(0, each.gpus - each.others - used.get(key, 0)) for key, each in allowances.items()}


def gpus_of(allocator: Allocator) -> dict[QuotaKey, int]:
    """That it has or may still get."""
    used: dict[QuotaKey, int] = {}
    for pool in allocator.pools.values():
        choice = choice_of(pool.offer)
        key = QuotaKey(choice.region, choice.accelerator, choice.spot)
        used[key] = used.get(key, 0) + at_most(pool, with_doomed=True) * max(1, pool.offer.accelerators_per_node)
    return used


def total(used: Iterable[Gpus]) -> dict[QuotaKey, int]:
    together: dict[QuotaKey, int] = {}
    for each in used:
        for key, gpus in each.items():
            together[key] = together.get(key, 0) + gpus
    return together
