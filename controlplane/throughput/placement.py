"""A placement of a job: groups of equal machines in zones, with prices."""

import math
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from controlplane.catalog.money import MicroDollars
from controlplane.catalog.places import region_of


class Group(Struct, frozen=True, kw_only=True):
    """Equal machines in one zone."""

    zone: str
    accelerator: str
    machines: Annotated[int, Meta(ge=1)]
    gpus_per_machine: Annotated[int, Meta(ge=1)]
    micro_usd_per_machine_hour: MicroDollars
    network_bit_per_s: Annotated[float, Meta(gt=0)]
    """The bandwidth of each machine."""
    bus_bit_per_s: Annotated[float, Meta(gt=0)] = math.inf
    """The bandwidth between the GPUs of a machine."""

    @property
    def region(self) -> str:
        return region_of(self.zone)

    @property
    def gpus(self) -> int:
        return self.machines * self.gpus_per_machine


class Placement(Struct, frozen=True):
    groups: tuple[Group, ...]

    @property
    def gpus(self) -> int:
        return sum(group.gpus for group in self.groups)

    @property
    def micro_usd_per_hour(self) -> MicroDollars:
        return MicroDollars(sum(group.machines * group.micro_usd_per_machine_hour for group in self.groups))


def placement_of(groups: Iterable[Group]) -> Placement:
    """A placement in the order of ranks: by region, then zone, so that neighbours in rank are close on the network."""
    return Placement(tuple(sorted(groups, key=lambda group: (group.region, group.zone, group.accelerator))))
