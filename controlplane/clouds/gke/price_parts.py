"""Prices of whole machines from the SKUs of Google's Cloud Billing Catalog.

The API prices parts. A machine costs its cores and memory at its family's rate, and its GPUs. Spot and on-demand parts
have separate SKUs. Patterns match the start of a description up to `running in`, because commitments, reservations,
sole tenancy, custom machines and GPUs of other machine families have similar descriptions.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from controlplane.catalog.money import from_nano_dollars
from controlplane.catalog.offers import Offer
from controlplane.catalog.price_list import Price

NANO_PER_USD = 10**9
USAGE_IS_SPOT = {"OnDemand": False, "Preemptible": True}
HOST_FAMILIES = {"n1": "N1 Predefined", "g2": "G2", "a2": "A2", "a3": "A3"}
"""Machine families by the first part of the machine type."""
UNITS = {"core": "h", "ram": "GiBy.h", "gpu": "h"}

_GPUS = {
    "tesla t4": "T4",
    "l4": "L4",
    "tesla v100": "V100",
    "tesla a100": "A100-40",
    "tesla a100 80gb": "A100-80",
    "h100 80gb": "H100",
}
"""The catalog's names of GPUs by the names of the price list in lower case."""
_SPOT_GPU = r"(?: attached to (?:spot )?preemptible vms)?"
_GPU = re.compile(rf"^nvidia (?P<gpu>{'|'.join(map(re.escape, _GPUS))}) gpu{_SPOT_GPU} running in ", re.IGNORECASE)
_FAMILIES = "|".join(HOST_FAMILIES.values())
_HOST = re.compile(
    rf"^(?:spot preemptible |preemptible )?(?P<family>{_FAMILIES}) instance (?P<part>core|ram) running in ",
    re.IGNORECASE,
)


class Money(Struct, frozen=True):
    """An amount in Google's JSON, which writes int64 as text and omits zero."""

    currency: str = msgspec.field(name="currencyCode", default="")
    units: Annotated[str, Meta(pattern=r"^\d{1,9}\Z")] = "0"
    nanos: Annotated[int, Meta(ge=0, lt=NANO_PER_USD)] = 0


class Tier(Struct, frozen=True, rename="camel"):
    unit_price: Money


class Expression(Struct, frozen=True, rename="camel"):
    usage_unit: str = ""
    tiered_rates: tuple[Tier, ...] = ()


class Pricing(Struct, frozen=True, rename="camel"):
    pricing_expression: Expression


class Category(Struct, frozen=True, rename="camel"):
    usage_type: str = ""


class Sku(Struct, frozen=True, rename="camel"):
    description: str = ""
    category: Category = Category()
    service_regions: tuple[str, ...] = ()
    pricing_info: tuple[Pricing, ...] = ()


class Page(Struct, frozen=True, rename="camel"):
    """One page of SKUs. `skus` has no default: an answer without it does not come from this API."""

    skus: tuple[Sku, ...]
    next_page_token: str = ""


class Part(NamedTuple):
    """An item with a price: a core or a GiB of a family, or a GPU."""

    kind: str
    of: str
    region: str
    spot: bool


Parts = Mapping[Part, int]
"""Prices in nano-dollars an hour."""


def parts_of(skus: Iterable[Sku]) -> dict[Part, int]:
    """The price of each part. If a part has two prices, the higher one counts, so that no plan exceeds its budget."""
    parts: dict[Part, int] = {}
    for sku in skus:
        named, nano_usd = _named(sku), _nano_usd(sku)
        if named is None or nano_usd is None:
            continue
        kind, of = named
        if _unit(sku) != UNITS[kind]:
            continue
        for region in sku.service_regions:
            part = Part(kind, of, region, USAGE_IS_SPOT[sku.category.usage_type])
            parts[part] = max(nano_usd, parts.get(part, 0))
    return parts


def prices_of(parts: Parts, offers: Iterable[Offer]) -> tuple[Price, ...]:
    """Prices of the machines for which all parts have a price."""
    machines = {(offer.region, offer.machine_type, offer.accelerator): offer for offer in offers}
    found = (_price(parts, offer, spot) for offer in machines.values() for spot in (True, False))
    return tuple(price for price in found if price is not None)


def _price(parts: Parts, offer: Offer, spot: bool) -> Price | None:
    family = HOST_FAMILIES.get(offer.machine_type.partition("-")[0])
    if family is None:
        return None
    core = parts.get(Part("core", family, offer.region, spot))
    ram = parts.get(Part("ram", family, offer.region, spot))
    gpu = parts.get(Part("gpu", offer.accelerator, offer.region, spot))
    if core is None or ram is None or gpu is None:
        return None
    nano_usd = offer.vcpus * core + offer.memory_gib * ram + offer.gpus * gpu
    return Price(offer.region, offer.machine_type, offer.accelerator, spot, from_nano_dollars(nano_usd))


def _named(sku: Sku) -> tuple[str, str] | None:
    """The kind of part, and its family or GPU; None for other SKUs."""
    if sku.category.usage_type not in USAGE_IS_SPOT:
        return None
    if (gpu := _GPU.match(sku.description)) is not None:
        return "gpu", _GPUS[gpu["gpu"].lower()]
    if (host := _HOST.match(sku.description)) is not None:
        family = next(each for each in HOST_FAMILIES.values() if each.lower() == host["family"].lower())
        return host["part"].lower(), family
    return None


def _unit(sku: Sku) -> str:
    return sku.pricing_info[-1].pricing_expression.usage_unit


def _nano_usd(sku: Sku) -> int | None:
    """The price of the newest entry's last tier: the first tier may be a free allowance."""
    if not sku.pricing_info or not sku.pricing_info[-1].pricing_expression.tiered_rates:
        return None
    price = sku.pricing_info[-1].pricing_expression.tiered_rates[-1].unit_price
    if price.currency != "USD":
        return None
    nano_usd = int(price.units) * NANO_PER_USD + price.nanos
    return nano_usd or None
