"""Kinds of machines: the key of prices, availability, quotas, plans and costs."""

from typing import NamedTuple

from controlplane.catalog.places import region_of


class MachineKind(NamedTuple):
    """Machines of one type in one zone, bought in one way: they share a price and run out together."""

    zone: str
    machine_type: str
    accelerator: str
    """The catalog's name, or the cloud's own where the catalog has none; empty for machines without accelerators."""
    accelerators: int
    """Accelerators of one machine."""
    spot: bool

    @property
    def region(self) -> str:
        return region_of(self.zone)
