"""What a machine costs at this moment: what the market says, else the catalog."""

import re
from collections.abc import Iterable, Mapping

from controlplane.catalog.accelerators import from_gke
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Catalog, Offer
from controlplane.clouds.interface import MarketPrice
from controlplane.ledger.state import Kind, Rate

CPU = "cpu"
"""What the market calls machines without accelerators, which it counts in vCPUs."""

_VCPUS = re.compile(r"-(\d+)\Z")

Market = Mapping[tuple[str, str], MarketPrice]
"""By zone and accelerator."""


def market_of(prices: Iterable[MarketPrice]) -> Market:
    return {(price.zone, price.accelerator): price for price in prices}


def rate_of(kind: Kind, market: Market, catalog: Catalog) -> Rate:
    return _market_rate(kind, market) or _list_rate(kind, catalog)


def _market_rate(kind: Kind, market: Market) -> Rate | None:
    price = market.get((kind.zone, kind.accelerator or CPU))
    units = kind.accelerators if kind.accelerator else _vcpus(kind.machine_type)
    if price is None or not units:
        return None
    on_demand = MicroDollars(price.on_demand_micro_usd_per_hour * units)
    return Rate(MicroDollars(price.spot_micro_usd_per_hour * units) if kind.spot else on_demand, on_demand)


def _list_rate(kind: Kind, catalog: Catalog) -> Rate:
    offer = _offer(kind, catalog)
    if offer is None:
        return Rate(None)
    return Rate(offer.micro_usd_per_hour(spot=kind.spot), offer.on_demand_micro_usd_per_hour)


def _offer(kind: Kind, catalog: Catalog) -> Offer | None:
    accelerator = from_gke(kind.accelerator)
    return catalog.find(kind.zone, kind.machine_type, accelerator.name) if accelerator is not None else None


def _vcpus(machine_type: str) -> int:
    found = _VCPUS.search(machine_type)
    return int(found[1]) if found else 0
