"""Kinds of machines, the one key under which prices, stocks, quotas, plans and costs are kept."""

from typing import NamedTuple

from controlplane.catalog.places import region_of


class MachineKind(NamedTuple):
    """Machines of one type in one zone, bought in one way: they share a price and run out together."""

    zone: str
    machine_type: str
    accelerator: str
    """The catalog's name, or the cloud's own where the catalog has none; empty for machines without accelerators."""
    accelerators: int
    """Of one machine."""
    spot: bool

    @property
    def region(self) -> str:
        return region_of(self.zone)
