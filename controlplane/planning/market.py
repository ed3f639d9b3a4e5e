"""The market of a job: the options that its criteria allow, with observations of each, links and quotas."""

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
"""Nodes of a zone whose capacity is not known."""


class Option(Struct, frozen=True, kw_only=True):
    choice: MachineKind
    gpus: int
    micro_usd_per_hour: MicroDollars
    """The price of one node."""
    network_bit_per_s: float
    limit: int = UNKNOWN_LIMIT
    """The most nodes that the zone has, as far as is known."""
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
    """What one job may use of each quota. Offers that need the same quota share it."""

    left: Mapping[QuotaKey, int] = MappingProxyType({})
    """Includes what the job already uses; a quota that is not listed limits nothing."""
    needs: Mapping[MachineKind, Needs] = MappingProxyType({})
    """What one node needs."""
    page: str = ""
    """The web page where a person requests more."""


UNLIMITED = Quotas()


class Market(Struct, frozen=True):
    options: Mapping[MachineKind, Option]
    """Sorted by choice, so that equal markets give equal plans."""
    links: Links
    quotas: Quotas = UNLIMITED


class CurrentCapacity(Struct, frozen=True):
    """The nodes that the job has now, independent of earlier plans."""

    held: Nodes = NONE
    """Nodes that exist and will stay."""
    in_flight: Nodes = NONE
    """Requested nodes that do not exist yet: they may still come, whatever is decided now."""
    stocked_out: frozenset[MachineKind] = frozenset()
    """Choices that have no more machines for now."""

    def committed(self) -> dict[MachineKind, int]:
        both = {choice: self.held.get(choice, 0) + self.in_flight.get(choice, 0) for choice in self.choices()}
        return {choice: count for choice, count in sorted(both.items()) if count}

    def expected(self) -> dict[MachineKind, int]:
        """Nodes that will probably exist: without requested ones of choices that are stocked out."""
        return {
            choice: nodes
            for choice, count in self.committed().items()
            if (nodes := self.held.get(choice, 0) if choice in self.stocked_out else count)
        }

    def choices(self) -> set[MachineKind]:
        return {*self.held, *self.in_flight}


Seen = Callable[[str, str], memory.Estimate]
"""Returns the estimate of a zone and an accelerator."""


def market_of(
    criteria: Criteria,
    offers: Iterable[Offer],
    links: Links,
    *,
    seen: Seen,
    limits: Mapping[MachineKind, int] | None = None,
    quotas: Quotas = UNLIMITED,
) -> Market:
    """The market of these criteria. `limits`, if given, has the most nodes of each choice; others are left out."""
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
