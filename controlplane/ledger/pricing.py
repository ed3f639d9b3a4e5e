"""The current price of a machine: from the market, otherwise from the catalog."""

from collections.abc import Iterable, Mapping

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.machine_types import vcpus_of
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog
from controlplane.clouds.interface import MarketPrice
from controlplane.ledger.events import Found
from controlplane.ledger.state import Rate

CPU = "cpu"
"""The market's name for machines without accelerators, which it counts in vCPUs."""

Market = Mapping[tuple[str, str], MarketPrice]
"""By zone and accelerator."""


def market_of(prices: Iterable[MarketPrice]) -> Market:
    return {(price.zone, price.accelerator): price for price in prices}


def rates_of(machines: Iterable[Found], market: Market, catalog: Catalog) -> dict[MachineKind, Rate]:
    return {machine.kind: rate_of(machine.kind, market, catalog) for machine in machines}


def rate_of(kind: MachineKind, market: Market, catalog: Catalog) -> Rate:
    return _market_rate(kind, market) or _list_rate(kind, catalog)


def _market_rate(kind: MachineKind, market: Market) -> Rate | None:
    price = market.get((kind.zone, kind.accelerator or CPU))
    units = kind.accelerators if kind.accelerator else vcpus_of(kind.machine_type)
    if price is None or not units:
        return None
    on_demand = MicroDollars(price.on_demand_micro_usd_per_hour * units)
    return Rate(MicroDollars(price.spot_micro_usd_per_hour * units) if kind.spot else on_demand, on_demand)


def _list_rate(kind: MachineKind, catalog: Catalog) -> Rate:
    offer = catalog.find_kind(kind)
    if offer is None:
        return Rate(None)
    return Rate(offer.micro_usd_per_hour(spot=kind.spot), offer.on_demand_micro_usd_per_hour)
