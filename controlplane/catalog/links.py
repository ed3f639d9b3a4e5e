"""The speed and the price of sending from one zone to another.

A machine is limited by its own network card inside a region, and by the link between regions. A measured speed between
two zones replaces the usual one for their distance.
"""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct

from controlplane.catalog.money import MicroDollars
from controlplane.catalog.places import Distance, continent_of, distance, region_of

BYTES_PER_GIB = 1 << 30
_NONE: Mapping[tuple[str, str], float] = MappingProxyType({})


class Link(Struct, frozen=True):
    bit_per_s: float
    """Speed from one machine to another."""
    egress_micro_usd_per_gib: MicroDollars


class Links(Struct, frozen=True, dict=True):
    """The links between all zones. `dict=True` is only for the cache of `between`, which plans call very often."""

    by_distance: Mapping[Distance, Link]
    egress_between: Mapping[tuple[str, str], MicroDollars]
    """By two continents in alphabetical order; other pairs have the egress price of their distance."""
    network_share: float = 1.0
    """The share of a machine's maximum bandwidth that a collective reaches."""
    measured_bit_per_s: Mapping[tuple[str, str], float] = _NONE
    """Measured speeds by sender and receiver zone."""

    def between(self, sender: str, receiver: str) -> Link:
        known = self._answered.get((sender, receiver))
        if known is None:
            known = self._answered[sender, receiver] = self._between(sender, receiver)
        return known

    @cached_property
    def _answered(self) -> dict[tuple[str, str], Link]:
        return {}

    def _between(self, sender: str, receiver: str) -> Link:
        far = distance(sender, receiver)
        usual = self.by_distance[far]
        bit_per_s = self.measured_bit_per_s.get((sender, receiver), usual.bit_per_s)
        return Link(bit_per_s, self._egress(sender, receiver, far, usual))

    def _egress(self, sender: str, receiver: str, far: Distance, usual: Link) -> MicroDollars:
        if far in (Distance.SAME_ZONE, Distance.SAME_REGION):
            return usual.egress_micro_usd_per_gib
        pair = continent_pair(continent_of(region_of(sender)), continent_of(region_of(receiver)))
        return self.egress_between.get(pair, usual.egress_micro_usd_per_gib)


def continent_pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)
