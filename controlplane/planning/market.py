"""What may be had: the options that a job's criteria leave over, with what was seen of each, links and quotas."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from controlplane.catalog import memory
from controlplane.catalog.accelerators import BY_NAME
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.links import Links
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.offers import Offer
from controlplane.clouds.interface import Needs, QuotaKey
from controlplane.planning.criteria import Criteria
from controlplane.throughput.placement import Group

UNKNOWN_LIMIT = 1000
"""Of a zone whose capacity nobody knows."""


class Option(Struct, frozen=True, kw_only=True):
    choice: MachineKind
    gpus: int
    micro_usd_per_hour: MicroDollars
    """Of one node."""
    network_bit_per_s: float
    limit: int = UNKNOWN_LIMIT
    """Nodes that the zone has at most, as far as is known."""
    lifetime_s: float = 4 * 3600.0
    boot_s: float = 150.0
    availability: float = 1.0

    def group(self, machines: int) -> Group:
        return Group(
            zone=self.choice.zone,
            accelerator=self.choice.accelerator,
            machines=machines,
            gpus_per_machine=self.gpus,
            micro_usd_per_machine_hour=self.micro_usd_per_hour,
            network_bit_per_s=self.network_bit_per_s,
            bus_bit_per_s=BY_NAME[self.choice.accelerator].bus_bit_per_s,
        )


Nodes = Mapping[MachineKind, int]
NONE: Nodes = MappingProxyType({})


class Quotas(Struct, frozen=True):
    """What one job may take of each quota. Offers that need the same one share it."""

    left: Mapping[QuotaKey, int] = MappingProxyType({})
    """With what the job has already; a quota that is not here limits nothing."""
    needs: Mapping[MachineKind, Needs] = MappingProxyType({})
    """Of one node."""
    page: str = ""
    """Where a person asks for more."""


UNLIMITED = Quotas()


class Market(Struct, frozen=True):
    options: Mapping[MachineKind, Option]
    """In the order of their choices, so that equal markets are planned equally."""
    links: Links
    quotas: Quotas = UNLIMITED


class Present(Struct, frozen=True):
    """The world as it is now. What was planned before is no part of it."""

    held: Nodes = NONE
    """Nodes that are there and will stay."""
    in_flight: Nodes = NONE
    """Asked for and not there yet: they may still come, whatever is decided now."""
    stocked_out: frozenset[MachineKind] = frozenset()
    """Where nothing more is to be had for now."""

    def committed(self) -> dict[MachineKind, int]:
        both = {choice: self.held.get(choice, 0) + self.in_flight.get(choice, 0) for choice in self.choices()}
        return {choice: count for choice, count in sorted(both.items()) if count}

    def kept(self) -> dict[MachineKind, int]:
        """Without what was asked for in vain."""
        return {
            choice: kept
            for choice, count in self.committed().items()
            if (kept := self.held.get(choice, 0) if choice in self.stocked_out else count)
        }

    def choices(self) -> set[MachineKind]:
        return {*self.held, *self.in_flight}


Seen = Callable[[str, str], memory.Estimate]
"""By zone and accelerator."""


def market_of(
    criteria: Criteria,
    offers: Iterable[Offer],
    links: Links,
    *,
    seen: Seen,
    limits: Mapping[MachineKind, int] | None = None,
    quotas: Quotas = UNLIMITED,
) -> Market:
    """`limits`, if given, are all that may be had: what is not there is not offered."""
    found = {
        option.choice: option
        for offer in offers
        if is_allowed(criteria, offer)
        for option in _options(offer, seen(offer.zone, offer.accelerator), limits)
        if _is_wanted(criteria, option)
    }
    return Market({choice: found[choice] for choice in sorted(found)}, links, quotas)


def is_allowed(criteria: Criteria, offer: Offer) -> bool:
    return (
        offer.gpus == criteria.gpus_per_worker
        and criteria.allows_zone(offer.zone, offer.region)
        and criteria.allows_accelerator(offer.accelerator)
        and criteria.allows_machine_type(offer.machine_type)
    )


def _is_wanted(criteria: Criteria, option: Option) -> bool:
    return criteria.on_demand < 1 if option.choice.spot else criteria.on_demand > 0


def _options(offer: Offer, seen: memory.Estimate, limits: Mapping[MachineKind, int] | None) -> Iterable[Option]:
    for spot in (True, False):
        price = offer.micro_usd_per_hour(spot=spot)
        choice = offer.kind(spot=spot)
        limit = UNKNOWN_LIMIT if limits is None else limits.get(choice, 0)
        if price is not None and limit > 0:
            yield Option(
                choice=choice,
                gpus=offer.gpus,
                micro_usd_per_hour=price,
                network_bit_per_s=offer.network_bit_per_s,
                limit=limit,
                lifetime_s=seen.mean_lifetime_s,
                boot_s=seen.boot_s,
                availability=seen.availability,
            )
