"""`tradewind offers`: the offered machines and their zones, from a master or from the shipped data."""

import asyncio
import os
import time
from collections.abc import Mapping

import click
from msgspec import structs

from controlplane.catalog.accelerators import ACCELERATORS, matching
from controlplane.catalog.shipped import shipped_catalog
from controlplane.catalog.views import offer_list
from messages.offers import OfferList, OfferView
from runtime.errors import TradewindError, UserError
from tradewind.client.api import connected
from tradewind.terminal import output, tables
from tradewind.terminal.offers import offer_table

MASTER_S = 3.0
"""Seconds to wait for a master before the shipped data is used."""


async def show_offers(wanted: frozenset[str] | None, region: str, *, as_json: bool) -> int:
    known, why = await known_offers(os.environ)
    chosen = select(known, wanted, region)
    if as_json:
        output.echo_json(structs.replace(known, offers=chosen))
    else:
        tables.console().print(offer_table(chosen))
        click.echo(f"\n{len(chosen)} offers; {prices_of(known)} in USD per hour for a whole machine.")
    if known.not_refreshed and not known.of_the_moment:
        click.echo(f"The price list is not refreshed: {known.not_refreshed}", err=True)
    if why:
        click.echo(no_observations(why), err=True)
    return 0


def no_observations(why: str) -> str:
    return f"No observations of zones: {why}"


def prices_of(known: OfferList) -> str:
    return f"{'current prices' if known.of_the_moment else f'prices of {known.date}'}"


async def known_offers(environ: Mapping[str, str]) -> tuple[OfferList, str]:
    """The offers of the master; or the shipped ones, with the reason why the master's are missing."""
    try:
        async with asyncio.timeout(MASTER_S), connected(environ) as api:
            return await api.offers(), ""
    except TradewindError as error:
        why = str(error)
    except TimeoutError:
        why = f"The master did not answer within {MASTER_S:g} s."
    return offer_list(shipped_catalog(), None, time.time()), why


def select(known: OfferList, accelerators: frozenset[str] | None, region: str) -> tuple[OfferView, ...]:
    """The matching offers, the cheapest GPU first. Raises `UserError` if there is none."""
    chosen = [
        offer
        for offer in known.offers
        if (accelerators is None or offer.accelerator in accelerators) and is_in(offer, region)
    ]
    if not chosen:
        raise UserError(_nothing(known, region), "tradewind offers")
    return tuple(sorted(chosen, key=lambda offer: (_cheapest(offer) / offer.gpus, offer.zone, offer.gpus)))


def is_in(offer: OfferView, region: str) -> bool:
    return not region or region in (offer.region, offer.zone) or (region[-1] == "-" and offer.zone.startswith(region))


def _cheapest(offer: OfferView) -> int:
    prices = (offer.spot_micro_usd_per_hour, offer.on_demand_micro_usd_per_hour)
    return min((price for price in prices if price is not None), default=0)


def accelerators_named(gpu: str | None) -> frozenset[str] | None:
    if gpu is None:
        return None
    found = matching(gpu)
    if not found:
        names = ", ".join(each.name for each in ACCELERATORS)
        raise UserError(f"There is no accelerator {gpu!r} in the catalog.", f"one of {names}")
    return frozenset(each.name for each in found)


def _nothing(known: OfferList, region: str) -> str:
    regions = sorted({offer.region for offer in known.offers})
    if region and not any(is_in(offer, region) for offer in known.offers):
        return f"No machine is offered in {region!r}; there are offers in {', '.join(regions)}."
    return f"This accelerator is not offered in {region!r}."
