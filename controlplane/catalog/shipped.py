"""The shipped data: prices and links as of a date, fully checked when they are read.

Each file has the date and the source of its figures. An invalid file is refused with all its problems.
"""

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from controlplane.catalog.accelerators import BY_NAME
from controlplane.catalog.links import Link, Links, continent_pair
from controlplane.catalog.money import MicroDollars, UsdText, micro_dollars
from controlplane.catalog.offers import Catalog, Offer
from controlplane.catalog.places import CONTINENTS, Distance
from runtime.errors import UserError
from runtime.problems import Checks, decode_checked

T = TypeVar("T")

PRICES_FILE = "gcp-prices.json"
LINKS_FILE = "links.json"
BIT_PER_GBIT = 1e9

Date = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}\Z", description="a date such as 2026-08-22")]
Text = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(ge=1, le=100_000)]
Speed = Annotated[float, Meta(gt=0, le=100_000)]
Region = Annotated[str, Meta(pattern=r"^[a-z]+-[a-z]+\d+\Z", description="a region such as us-central1")]
ZoneLetter = Annotated[str, Meta(pattern=r"^[a-z]\Z", description="the letter of a zone")]


class MachineRow(Struct, frozen=True, forbid_unknown_fields=True):
    machine_type: Text
    accelerator: Text
    gpus: Positive
    vcpus: Positive
    memory_gib: Positive
    network_gbit_per_s: Speed


class PriceRow(Struct, frozen=True, forbid_unknown_fields=True):
    region: Region
    machine_type: Text
    accelerator: Text
    zones: Annotated[tuple[ZoneLetter, ...], Meta(min_length=1)]
    spot_usd_per_hour: UsdText | None = None
    on_demand_usd_per_hour: UsdText | None = None


class PriceFile(Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    cloud: Literal["gcp"]
    date: Date
    source: Text
    machines: Annotated[tuple[MachineRow, ...], Meta(min_length=1)]
    prices: Annotated[tuple[PriceRow, ...], Meta(min_length=1)]


class LinkRow(Struct, frozen=True, forbid_unknown_fields=True):
    gbit_per_s: Speed
    egress_usd_per_gib: UsdText


class EgressRow(Struct, frozen=True, forbid_unknown_fields=True):
    between: tuple[Text, Text]
    usd_per_gib: UsdText


class LinkFile(Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    date: Date
    source: Text
    network_share: Annotated[float, Meta(gt=0, le=1)]
    distances: dict[Text, LinkRow]
    egress: tuple[EgressRow, ...] = ()


def shipped_catalog() -> Catalog:
    return read_prices(_shipped(PRICES_FILE), PRICES_FILE)


def shipped_links() -> Links:
    return read_links(_shipped(LINKS_FILE), LINKS_FILE)


def read_prices(content: bytes, name: str) -> Catalog:
    read = _read(content, PriceFile, name, _price_problems)
    machines = {(row.machine_type, row.accelerator): row for row in read.machines}
    offers = (
        _offer(machines[row.machine_type, row.accelerator], row, letter) for row in read.prices for letter in row.zones
    )
    ordered = sorted(offers, key=lambda offer: (offer.zone, offer.accelerator, offer.gpus, offer.machine_type))
    return Catalog(tuple(ordered), read.date, read.source)


def read_links(content: bytes, name: str) -> Links:
    read = _read(content, LinkFile, name, _link_problems)
    by_distance = {Distance(far): _link(row) for far, row in read.distances.items()}
    egress = {continent_pair(*row.between): micro_dollars(row.usd_per_gib) for row in read.egress}
    return Links(by_distance, egress, read.network_share)


def _shipped(name: str) -> bytes:
    return files("controlplane.catalog").joinpath("data", name).read_bytes()


def _read(content: bytes, wanted: type[T], name: str, checks: Checks[T]) -> T:
    """Decode a file: fast if it is valid, otherwise again by the slow way that finds every problem."""
    try:
        read = msgspec.json.decode(content, type=wanted)
        if not checks(read):
            return read
    except msgspec.ValidationError:
        pass
    except msgspec.DecodeError as error:
        raise UserError(f"{name} is not JSON: {error}") from None
    return decode_checked(wanted, msgspec.json.decode(content), what=name, checks=checks)


def _offer(machine: MachineRow, row: PriceRow, letter: str) -> Offer:
    return Offer(
        zone=f"{row.region}-{letter}",
        region=row.region,
        machine_type=row.machine_type,
        accelerator=row.accelerator,
        gpus=machine.gpus,
        gpu_memory_gib=BY_NAME[row.accelerator].memory_gib,
        vcpus=machine.vcpus,
        memory_gib=machine.memory_gib,
        network_bit_per_s=machine.network_gbit_per_s * BIT_PER_GBIT,
        spot_micro_usd_per_hour=_price(row.spot_usd_per_hour),
        on_demand_micro_usd_per_hour=_price(row.on_demand_usd_per_hour),
    )


def _price(usd: str | None) -> MicroDollars | None:
    return None if usd is None else micro_dollars(usd)


def _link(row: LinkRow) -> Link:
    return Link(row.gbit_per_s * BIT_PER_GBIT, micro_dollars(row.egress_usd_per_gib))


def _price_problems(read: PriceFile) -> Sequence[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    machines = Counter((row.machine_type, row.accelerator) for row in read.machines)
    for place, machine in enumerate(read.machines):
        if machine.accelerator not in BY_NAME:
            found.append((f"machines[{place}]", f"there is no accelerator {machine.accelerator}"))
        if machines[machine.machine_type, machine.accelerator] > 1:
            found.append((f"machines[{place}]", f"{machine.machine_type} with {machine.accelerator} is listed twice"))
    offered = Counter(
        (row.region, zone, row.machine_type, row.accelerator) for row in read.prices for zone in row.zones
    )
    for place, row in enumerate(read.prices):
        found += ((f"prices[{place}]", problem) for problem in _row_problems(row, machines, offered))
    return found


def _row_problems(
    row: PriceRow, machines: Counter[tuple[str, str]], offered: Counter[tuple[str, str, str, str]]
) -> Sequence[str]:
    what = f"{row.machine_type} with {row.accelerator}"
    found: list[str] = []
    if (row.machine_type, row.accelerator) not in machines:
        found.append(f"{what} is not listed under machines")
    found += [
        f"{what} is offered twice in {row.region}-{zone}"
        for zone in sorted(set(row.zones))
        if offered[row.region, zone, row.machine_type, row.accelerator] > 1
    ]
    spot, on_demand = _price(row.spot_usd_per_hour), _price(row.on_demand_usd_per_hour)
    if spot is None and on_demand is None:
        found.append(f"{what} has no price in {row.region}")
    if 0 in (spot, on_demand):
        found.append(f"{what} has the price 0 in {row.region}")
    if spot is not None and on_demand is not None and spot > on_demand:
        found.append(f"{what} costs more as spot than on demand in {row.region}")
    return found


def _link_problems(read: LinkFile) -> Sequence[tuple[str, str]]:
    known = [far.value for far in Distance]
    found = [("distances", f"there is no distance {far}") for far in read.distances if far not in known]
    found += [("distances", f"{far} is missing") for far in known if far not in read.distances]
    pairs = Counter(continent_pair(*row.between) for row in read.egress)
    for place, row in enumerate(read.egress):
        found += [
            (f"egress[{place}]", f"there is no continent {each}") for each in row.between if each not in CONTINENTS
        ]
        if pairs[continent_pair(*row.between)] > 1:
            found.append((f"egress[{place}]", f"{' and '.join(row.between)} are listed twice"))
    return found
