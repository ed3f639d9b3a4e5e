"""Machines with accelerators, by zone, with what they cost."""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars


class Offer(Struct, frozen=True):
    """One kind of machine in one zone. A price is of the whole machine: host and accelerators."""

    zone: str
    region: str
    machine_type: str
    accelerator: str
    gpus: int
    gpu_memory_gib: int
    """Of one GPU."""
    vcpus: int
    memory_gib: int
    network_bit_per_s: float
    """What the machine may send at most, as its cloud says."""
    spot_micro_usd_per_hour: MicroDollars | None
    on_demand_micro_usd_per_hour: MicroDollars | None
    """None where it is not offered so."""

    def kind(self, *, spot: bool) -> MachineKind:
        return MachineKind(self.zone, self.machine_type, self.accelerator, self.gpus, spot)

    def micro_usd_per_hour(self, *, spot: bool) -> MicroDollars | None:
        return self.spot_micro_usd_per_hour if spot else self.on_demand_micro_usd_per_hour


class Catalog(Struct, frozen=True, dict=True):
    """`dict=True` only for the index that is made once."""

    offers: tuple[Offer, ...]
    date: str
    """Of the prices, `2026-08-22`."""
    source: str

    def find(self, zone: str, machine_type: str, accelerator: str) -> Offer | None:
        return self._by_key.get((zone, machine_type, accelerator))

    def find_kind(self, kind: MachineKind) -> Offer | None:
        return self.find(kind.zone, kind.machine_type, kind.accelerator)

    def select(self, *, accelerators: frozenset[str] | None = None, region: str = "") -> Iterator[Offer]:
        """`region` is a region, a zone, or the beginning of one that ends in `-`, such as `us-`."""
        for offer in self.offers:
            if accelerators is not None and offer.accelerator not in accelerators:
                continue
            if not region or region in (offer.region, offer.zone) or (region[-1] == "-" and _begins(offer, region)):
                yield offer

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], Offer]:
        return {(offer.zone, offer.machine_type, offer.accelerator): offer for offer in self.offers}


def _begins(offer: Offer, text: str) -> bool:
    return offer.zone.startswith(text)
