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
MOST_CONTINENTS = 4


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
    by_continent: dict[str, list[str]] = {}
    for zone in ordered:
        by_continent.setdefault(continent_of(region_of(zone)), []).append(zone)
    names = list(by_continent)
    sizes = range(1, min(len(names), MOST_CONTINENTS) + 1)
    for chosen in chain.from_iterable(combinations(names, size) for size in sizes):
        zones = [zone for zone in ordered if continent_of(region_of(zone)) in chosen]
        if len({region_of(zone) for zone in zones}) >= 2:
            yield _open_ring(zones, chosen, links)


def _open_ring(zones: Sequence[str], continents: tuple[str, ...], links: Links) -> Ring:
    regions = {region_of(zone): zone for zone in zones}
    whole = fixed_ring(list(regions.values()), links)
    same = _within_a_region(zones, links)
    inside = {continent: _within(continent, regions, links) for continent in continents}
    between = 0.0
    if len(continents) > 1:
        first = {continent_of(region): zone for region, zone in reversed(regions.items())}
        ends = [first[continent] for continent in continents]
        between = fixed_ring(ends, links).micro_usd_per_gib - sum(inside.values())
    extra = {region: inside[continent_of(region)] - same for region in regions}
    return Ring(
        tuple(zones),
        whole.slowest_bit_per_s,
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


def _within(continent: str, regions: dict[str, str], links: Links) -> float:
    here = [zone for region, zone in regions.items() if continent_of(region) == continent]
    prices = [links.between(*pair).egress_micro_usd_per_gib for pair in pairwise(here)]
    return min(prices, default=0.0) if prices else 0.0
