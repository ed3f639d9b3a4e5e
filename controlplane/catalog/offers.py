"""Machines with accelerators, by zone, with their prices."""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars


class Offer(Struct, frozen=True):
    """One kind of machine in one zone. A price covers the whole machine: host and accelerators."""

    zone: str
    region: str
    machine_type: str
    accelerator: str
    gpus: int
    gpu_memory_gib: int
    """Memory of one GPU."""
    vcpus: int
    memory_gib: int
    network_bit_per_s: float
    """The machine's maximum egress bandwidth by its cloud's documentation."""
    spot_micro_usd_per_hour: MicroDollars | None
    on_demand_micro_usd_per_hour: MicroDollars | None
    """Like the spot price, None if the machine is not offered in this way."""

    def kind(self, *, spot: bool) -> MachineKind:
        return MachineKind(self.zone, self.machine_type, self.accelerator, self.gpus, spot)

    def micro_usd_per_hour(self, *, spot: bool) -> MicroDollars | None:
        return self.spot_micro_usd_per_hour if spot else self.on_demand_micro_usd_per_hour


class Catalog(Struct, frozen=True, dict=True):
    """All offers as of a date. `dict=True` is only for the cached index."""

    offers: tuple[Offer, ...]
    date: str
    """Date of the prices, such as `2026-08-22`."""
    source: str

    def find(self, zone: str, machine_type: str, accelerator: str) -> Offer | None:
        return self._by_key.get((zone, machine_type, accelerator))

    def find_kind(self, kind: MachineKind) -> Offer | None:
        """The offer of this kind. None if its machines have another number of GPUs, whose price differs."""
        offer = self.find(kind.zone, kind.machine_type, kind.accelerator)
        return offer if offer is not None and offer.gpus == kind.accelerators else None

    def select(self, *, accelerators: frozenset[str] | None = None, region: str = "") -> Iterator[Offer]:
        """Offers of these accelerators; `region` is a region, a zone, or a prefix that ends in `-`, such as `us-`."""
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
