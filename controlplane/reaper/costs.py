"""What it costs an hour that somebody forgot: the machines that are there, at the market's price or the catalog's."""

from collections.abc import Iterable

from controlplane.catalog.offers import Catalog
from controlplane.clouds.interface import MachineInfo
from controlplane.ledger.pricing import Market, rate_of


def micro_usd_per_hour(machines: Iterable[MachineInfo], market: Market, catalog: Catalog) -> int | None:
    """None where the price of one of them is not known. Disks, system pools and clusters' fees are not in it."""
    prices = [rate_of(machine.kind, market, catalog).paid for machine in machines]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
