"""Sets of zones to choose from. What a ring costs depends on its zones, not on how many nodes are in each.

A *fixed* ring uses each of its zones: its slowest link and its egress are known. Few zones are tried in every
combination. Where there are many, every combination within a region is; for a continent, or several, one *open* ring
stands for all, and the solver chooses regions and zones at what each adds to the egress. That is exact where links
follow distance; where single links were measured, what an open ring leads to is checked and not proven.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, groupby, pairwise

from msgspec import Struct

from controlplane.catalog.links import Links
from controlplane.catalog.places import continent_of, region_of

ALL_COMBINATIONS = 6
"""Of so many zones at most."""
REGION_COMBINATIONS = 5
MOST_CONTINENTS = 3
"""In a ring, but for the one through all."""


class Ring(Struct, frozen=True):
    zones: tuple[str, ...]
    """In the order of ranks."""
    slowest_bit_per_s: float
    micro_usd_per_gib: float
    """For a GiB over each of its links; of an open ring what does not depend on the choice."""
    is_open: bool = False
    micro_usd_per_zone: float = 0.0
    micro_usd_per_region: float = 0.0
    """What each that is used adds, if the ring is open; the least of its continents."""
    extra_by_region: dict[str, float] = {}
    continents: tuple[str, ...] = ()
    """Each of which is used."""

    @property
    def least_regions(self) -> int:
        return max(2, len(self.continents)) if self.is_open else 1


def rings(zones: Sequence[str], links: Links) -> Iterator[Ring]:
    ordered = sorted(zones, key=lambda zone: (region_of(zone), zone))
    if len(ordered) <= ALL_COMBINATIONS:
        yield from (fixed_ring(chosen, links) for chosen in _combinations(ordered))
        return
    for _, inside in groupby(ordered, key=region_of):
        here = list(inside)
        if len(here) <= REGION_COMBINATIONS:
            yield from (fixed_ring(chosen, links) for chosen in _combinations(here))
        else:
            few = chain.from_iterable(combinations(here, size) for size in (1, 2, len(here)))
            yield from (fixed_ring(chosen, links) for chosen in few)
    yield from _open_rings(ordered, links)


def fixed_ring(zones: Sequence[str], links: Links) -> Ring:
    pairs = list(pairwise((*zones, zones[0]))) if len(zones) > 1 else [(zones[0], zones[0])]
    ways = [links.between(*pair) for pair in pairs]
    price = sum(way.egress_micro_usd_per_gib for way in ways) if len(zones) > 1 else 0.0
    return Ring(tuple(zones), min(way.bit_per_s for way in ways), price)


def _combinations(zones: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(zones, size) for size in range(1, len(zones) + 1))


def _open_rings(ordered: Sequence[str], links: Links) -> Iterator[Ring]:
    continent = {zone: continent_of(region_of(zone)) for zone in ordered}
    names = list(dict.fromkeys(continent.values()))
    sizes = {*range(1, min(len(names), MOST_CONTINENTS) + 1), len(names)}
    for chosen in chain.from_iterable(combinations(names, size) for size in sorted(sizes)):
        zones = [zone for zone in ordered if continent[zone] in chosen]
        regions = {region_of(zone): zone for zone in zones}
        if len(regions) >= 2:
            yield _open_ring(zones, regions, chosen, links)


def _open_ring(zones: Sequence[str], regions: dict[str, str], continents: tuple[str, ...], links: Links) -> Ring:
    """`regions` have one zone each, which stands for all."""
    same = _within_a_region(zones, links)
    by_continent: dict[str, list[str]] = {}
    for region, zone in regions.items():
        by_continent.setdefault(continent_of(region), []).append(zone)
    inside = {continent: _between_regions(here, links) for continent, here in by_continent.items()}
    extra = {region: inside[continent_of(region)] - same for region in regions}
    between = 0.0
    if len(continents) > 1:
        ends = [here[0] for here in by_continent.values()]
        between = fixed_ring(ends, links).micro_usd_per_gib - sum(inside.values())
    return Ring(
        tuple(zones),
        fixed_ring(list(regions.values()), links).slowest_bit_per_s,
        between,
        is_open=True,
        micro_usd_per_zone=same,
        micro_usd_per_region=min(extra.values()),
        extra_by_region=extra,
        continents=continents,
    )


def _within_a_region(zones: Sequence[str], links: Links) -> float:
    pairs = (pair for pair in pairwise(zones) if region_of(pair[0]) == region_of(pair[1]))
    return min((links.between(*pair).egress_micro_usd_per_gib for pair in pairs), default=0.0)


def _between_regions(zones: Sequence[str], links: Links) -> float:
    return min((links.between(*pair).egress_micro_usd_per_gib for pair in pairwise(zones)), default=0.0)
