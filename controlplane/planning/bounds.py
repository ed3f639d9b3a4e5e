"""Lower bounds for the cost of a ring, for every useful number of nodes.

More nodes that do not make the largest share of the batch smaller only cost more: of the numbers with the same share,
only the smallest is useful.
"""

import math

import numpy as np
from msgspec import Struct

from controlplane.catalog.places import region_of
from controlplane.planning.criteria import SECONDS_PER_HOUR, Criteria
from controlplane.planning.option_arrays import Field
from controlplane.planning.rings import Ring
from controlplane.planning.step_times import Floats, Ints
from controlplane.planning.tuning import Tuning

ROUNDED_MICRO_USD = 1
"""More than the rounding errors of float sums: a bound must not exceed the cost that it bounds."""


class Bound(Struct, frozen=True):
    """The bound of one ring, by number of nodes."""

    ring: Ring
    numbers: Ints
    """Numbers of the field's options in the ring's zones."""
    least: Ints
    """The fewest nodes of each of these options."""
    nodes: Ints
    on_demand: Ints
    step_s: Floats
    weighed_per_hour: Floats
    """The least micro-dollars an hour, with the price of risk."""


def bound_of(field: Field, ring: Ring, criteria: Criteria, tuning: Tuning) -> Bound | None:
    numbers = np.array([number for zone in ring.zones for number in field.by_zone[zone]])
    if field.least[numbers].sum() < field.least.sum():
        return None
    least = _least(field, ring, numbers)
    if np.any(least > field.most[numbers]):
        return None
    nodes, on_demand = _useful_sizes(field, numbers, least, ring, criteria)
    if not len(nodes):
        return None
    slowest = min(ring.slowest_bit_per_s, field.cards_bit_per_s)
    step_s = field.paces.step_s(nodes, slowest)
    egress = _egress(field, ring, numbers, nodes) * field.paces.gib_over_a_link(nodes) * SECONDS_PER_HOUR / step_s
    weights = field.price[numbers] + field.risk[numbers] + nodes[:, None] * field.risk_per_worker[numbers]
    weighed = _cheapest(field, numbers, least, nodes, on_demand, weights) + egress
    if len(ring.zones) == 1 and ring.zones[0] in field.crowd_price:
        crowd = nodes - on_demand - np.ceil(nodes * tuning.zone_share)
        weighed = weighed + np.maximum(crowd, 0) * field.crowd_price[ring.zones[0]]
    keep = np.isfinite(weighed)
    if criteria.max_micro_usd_per_hour is not None:
        prices = np.broadcast_to(field.price[numbers], weights.shape)
        money = _cheapest(field, numbers, least, nodes, on_demand, prices) + egress
        keep &= money <= criteria.max_micro_usd_per_hour + ROUNDED_MICRO_USD
    if not keep.any():
        return None
    return Bound(ring, numbers, least, nodes[keep], on_demand[keep], step_s[keep], weighed[keep])


def _least(field: Field, ring: Ring, numbers: Ints) -> Ints:
    """The fewest nodes of each option. Each zone of a fixed ring is used, so a zone's only option has at least one."""
    least = field.least[numbers].copy()
    if not ring.is_open:
        alone = np.array([len(field.by_zone[zone]) == 1 for zone in ring.zones for _ in field.by_zone[zone]])
        least[alone] = np.maximum(least[alone], 1)
    return least


def _useful_sizes(field: Field, numbers: Ints, least: Ints, ring: Ring, criteria: Criteria) -> tuple[Ints, Ints]:
    spot = field.spot[numbers]
    fewest = max(criteria.min_workers, int(least.sum()), ring.least_regions if ring.is_open else len(ring.zones))
    room = min(field.room, sum(_rooms(field, numbers, by_region=True).values()))
    nodes = np.arange(fewest, int(min(criteria.max_workers, room)) + 1)
    on_demand = np.ceil(nodes * criteria.on_demand - 1e-9).astype(np.int64)
    on_spot = nodes - on_demand
    fits = (
        (on_demand >= least[~spot].sum())
        & (on_demand <= _room_of_kind(field, numbers, spot=False))
        & (on_spot >= least[spot].sum())
        & (on_spot <= _room_of_kind(field, numbers, spot=True))
        & (field.paces.samples[nodes] > 0)
    )
    nodes, on_demand = nodes[fits], on_demand[fits]
    samples = field.paces.samples[nodes]
    first = np.ones(len(nodes), dtype=np.bool_)
    first[1:] = samples[1:] != samples[:-1]
    return nodes[first], on_demand[first]


def _room_of_kind(field: Field, numbers: Ints, *, spot: bool) -> float:
    """The most spot or on-demand nodes, limited by zones and by the quotas that only such nodes need."""
    by_region: dict[str, int] = {}
    for number in numbers[field.spot[numbers] == spot]:
        region = field.options[number].choice.region
        by_region[region] = by_region.get(region, 0) + int(field.most[number])
    return sum(min(most, field.room_by_region_and_kind[region, spot]) for region, most in by_region.items())


def _egress(field: Field, ring: Ring, numbers: Ints, nodes: Ints) -> Floats:
    """The least micro-dollars for a GiB over each link."""
    if not ring.is_open:
        return np.full(len(nodes), ring.micro_usd_per_gib)
    zones = np.maximum(_fewest(field, numbers, nodes, by_region=False), ring.least_regions)
    regions = np.maximum(_fewest(field, numbers, nodes, by_region=True), ring.least_regions)
    return ring.micro_usd_per_gib + regions * ring.micro_usd_per_region + zones * ring.micro_usd_per_zone


def _fewest(field: Field, numbers: Ints, nodes: Ints, *, by_region: bool) -> Ints:
    """The fewest zones or regions that have room for so many nodes."""
    reached = np.cumsum(sorted(_rooms(field, numbers, by_region=by_region).values(), reverse=True))
    found: Ints = np.searchsorted(reached, nodes) + 1
    return found


def _rooms(field: Field, numbers: Ints, *, by_region: bool) -> dict[str, float]:
    """The most nodes of each zone or region."""
    room: dict[str, float] = {}
    for number in numbers:
        zone = field.options[number].choice.zone
        place = region_of(zone) if by_region else zone
        most = room.get(place, 0) + int(field.most[number])
        room[place] = min(most, field.room_by_region[region_of(zone)])
    return room


def _cheapest(field: Field, numbers: Ints, least: Ints, nodes: Ints, on_demand: Ints, weights: Floats) -> Floats:
    """The least total weight, ignoring quotas and zones; infinite if there are too few nodes."""
    spot, room = field.spot[numbers], field.most[numbers] - least
    total: Floats = weights @ least.astype(np.float64)
    for kind, wanted in ((spot, nodes - on_demand), (~spot, on_demand)):
        if not kind.any():
            continue
        missing = wanted - least[kind].sum()
        prices = weights[:, kind]
        order = np.argsort(prices, axis=1, kind="stable")
        rooms = room[kind][order]
        before = np.cumsum(rooms, axis=1) - rooms
        taken = np.clip(missing[:, None] - before, 0, rooms)
        total = total + (taken * np.take_along_axis(prices, order, axis=1)).sum(axis=1)
        total = np.where(taken.sum(axis=1) < missing, math.inf, total)
    return total
