"""The table of offers."""

from collections.abc import Sequence

from rich.table import Table

from messages.offers import OfferView
from tradewind.terminal import output, tables


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
        output.NOTHING if offer.availability is None else f"{offer.availability:.0%}",
        output.NOTHING if offer.mean_lifetime_s is None else output.duration(offer.mean_lifetime_s),
    )


def _price(amount: int | None) -> str:
    return output.NOTHING if amount is None else output.usd_text(amount)
