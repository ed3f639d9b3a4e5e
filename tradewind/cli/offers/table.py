"""Offers as a table for people."""

from collections.abc import Sequence

from rich.table import Table

from controlplane.catalog.money import usd_text
from messages.offers import OfferView
from tradewind.cli import output, tables

NOTHING = "–"


def offer_table(offers: Sequence[OfferView]) -> Table:
    columns = ("ZONE", "GPU", ">GPUS", ">GIB/GPU", "MACHINE", ">SPOT", ">ON DEMAND", ">SPOT/GPU", ">SEEN", ">LIVES")
    return tables.table(columns, (_row(offer) for offer in offers))


def _row(offer: OfferView) -> tuple[str, ...]:
    spot = offer.spot_micro_usd_per_hour
    return (
        offer.zone,
        offer.accelerator,
        str(offer.gpus),
        str(offer.gpu_memory_gib),
        offer.machine_type,
        _price(spot),
        _price(offer.on_demand_micro_usd_per_hour),
        _price(None if spot is None else spot // offer.gpus),
        NOTHING if offer.availability is None else f"{offer.availability:.0%}",
        NOTHING if offer.mean_lifetime_s is None else output.duration(offer.mean_lifetime_s),
    )


def _price(amount: int | None) -> str:
    return NOTHING if amount is None else usd_text(amount)
