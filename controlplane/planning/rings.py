"""Sets of zones to choose from. The cost of a ring depends on its zones, not on the number of nodes in each.

A *fixed* ring uses each of its zones, so its slowest link and its egress are known. Few zones are tried in every
combination. Of many zones, every combination within a region is tried. For one or several continents, one *open* ring
stands for all combinations: the solver chooses regions and zones by what each adds to the egress. That is exact if the
links depend only on distance. With measured links, the result of an open ring is checked but not proven to be the best.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, groupby, pairwise

from msgspec import Struct

from controlplane.catalog.links import Links
from controlplane.catalog.places import continent_of, region_of

ALL_COMBINATIONS = 6
"""The most zones that are tried in every combination."""
REGION_COMBINATIONS = 5
MOST_CONTINENTS = 3
"""The most continents in a ring, except in the ring through all."""


class Ring(Struct, frozen=True):
    zones: tuple[str, ...]
    """In the order of ranks."""
    slowest_bit_per_s: float
    micro_usd_per_gib: float
    """Price of a GiB over each of its links; in an open ring the part that does not depend on the choice."""
    is_open: bool = False
    micro_usd_per_zone: float = 0.0
    micro_usd_per_region: float = 0.0
    """What each used region of an open ring adds; the least of its continents."""
    extra_by_region: dict[str, float] = {}
    continents: tuple[str, ...] = ()
    """All of them are used."""

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
    """An open ring; `regions` maps each region to one of its zones, which stands for all."""
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
