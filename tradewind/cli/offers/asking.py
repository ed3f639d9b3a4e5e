"""Where the offers come from, and which of them are shown."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping

import click
from msgspec import structs

from controlplane.catalog.accelerators import ACCELERATORS, matching
from controlplane.catalog.shipped import shipped_catalog
from controlplane.catalog.views import offer_list
from messages.offers import OfferList, OfferView
from runtime.errors import TradewindError, UserError
from runtime.process import Stop, run
from tradewind.cli import tables
from tradewind.cli.client import connected
from tradewind.cli.foreground import quiet_logs, unless_stopped
from tradewind.cli.offers.table import offer_table
from tradewind.cli.output import echo_json

PATIENCE_S = 3.0
"""A master that does not answer soon is not waited for: the data is here."""


def show_offers(gpu: str | None, region: str, *, as_json: bool) -> None:
    wanted = _accelerators(gpu)

    async def main(stop: Stop) -> int:
        return await unless_stopped(_show(wanted, region, as_json=as_json), stop)

    quiet_logs()
    sys.exit(run(main))


async def _show(wanted: frozenset[str] | None, region: str, *, as_json: bool) -> int:
    known, why = await known_offers(os.environ)
    chosen = select(known, wanted, region)
    if as_json:
        echo_json(structs.replace(known, offers=chosen))
    else:
        tables.console().print(offer_table(chosen))
        click.echo(f"\n{len(chosen)} offers; {prices_of(known)} in USD an hour, of a whole machine.")
    if known.not_refreshed and not known.of_the_moment:
        click.echo(f"The price list could not be refreshed: {known.not_refreshed}", err=True)
    if why:
        click.echo(f"What was seen of these zones is not known here: {why}", err=True)
    return 0


def prices_of(known: OfferList) -> str:
    return f"prices of {'the moment' if known.of_the_moment else known.date}"


async def known_offers(environ: Mapping[str, str]) -> tuple[OfferList, str]:
    """With the reason if no master told them."""
    try:
        async with asyncio.timeout(PATIENCE_S), connected(environ) as api:
            return await api.offers(), ""
    except TradewindError as error:
        why = str(error)
    except TimeoutError:
        why = f"The master did not answer within {PATIENCE_S:g} s."
    return offer_list(shipped_catalog(), None, time.time()), why


def select(known: OfferList, accelerators: frozenset[str] | None, region: str) -> tuple[OfferView, ...]:
    """The cheapest GPU first."""
    chosen = [
        offer
        for offer in known.offers
        if (accelerators is None or offer.accelerator in accelerators) and is_in(offer, region)
    ]
    if not chosen:
        raise UserError(_nothing(known, region), "tradewind offers", ())
    return tuple(sorted(chosen, key=lambda offer: (_cheapest(offer) / offer.gpus, offer.zone, offer.gpus)))


def is_in(offer: OfferView, region: str) -> bool:
    return not region or region in (offer.region, offer.zone) or (region[-1] == "-" and offer.zone.startswith(region))


def _cheapest(offer: OfferView) -> int:
    prices = (offer.spot_micro_usd_per_hour, offer.on_demand_micro_usd_per_hour)
    return min((price for price in prices if price is not None), default=0)


def _accelerators(gpu: str | None) -> frozenset[str] | None:
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
        return f"Nothing is offered in {region!r}; there are offers in {', '.join(regions)}."
    return f"That accelerator is not offered in {region!r}."
