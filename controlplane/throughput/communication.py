"""The all-reduce over machines: its time, and the bytes that cross zones.

A ring of n moves 2(n-1)/n of the bytes over each of its links, and is as fast as its slowest link. If a machine holds
several replicas, their gradients are reduced inside it first, over its own bus.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from msgspec import Struct, structs

from controlplane.catalog.links import Links
from controlplane.throughput.placement import Group
from controlplane.throughput.profile import Collective

BITS_PER_BYTE = 8

Crossings = Mapping[tuple[str, str], float]
"""Bytes in a step, by sender and receiver zone if they differ."""


class Communication(Struct, frozen=True):
    seconds: float
    crossings: Crossings


def communicate(
    groups: Sequence[Group], sent_bytes: float, members: int, collective: Collective, links: Links
) -> Communication:
    """The all-reduce of the groups, which are in the order of ranks.

    `sent_bytes` are those of one machine; `members` of a ring are the machines, or the replicas if those are fewer.
    """
    regions = [tuple(inside) for _, inside in groupby(groups, key=lambda group: group.region)]
    if collective is Collective.RING or len(regions) == 1:
        return _ring(groups, sent_bytes, min(members, _machines(groups)), links)
    inside = [_ring(each, sent_bytes, _machines(each), links) for each in regions]
    between = _ring([structs.replace(each[0], machines=1) for each in regions], sent_bytes, len(regions), links)
    crossings: dict[tuple[str, str], float] = {}
    for part in (*inside, between):
        for pair, crossed in part.crossings.items():
            crossings[pair] = crossings.get(pair, 0.0) + crossed
    return Communication(max(part.seconds for part in inside) + between.seconds, crossings)


def add_up_inside_s(groups: Sequence[Group], gradient_bytes: int, replica_gpus: int) -> float:
    """Seconds of the reduction inside the slowest machine."""
    return max(
        _over_a_link(gradient_bytes, group.gpus_per_machine // replica_gpus) * BITS_PER_BYTE / group.bus_bit_per_s
        for group in groups
    )


def _over_a_link(sent_bytes: float, members: int) -> float:
    return 2 * (members - 1) / members * sent_bytes if members > 1 else 0.0


def _ring(groups: Sequence[Group], sent_bytes: float, members: int, links: Links) -> Communication:
    if members < 2 or sent_bytes <= 0:
        return Communication(0.0, {})
    over_a_link = _over_a_link(sent_bytes, members)
    crossings: dict[tuple[str, str], float] = {}
    slowest = math.inf
    for sender, receiver in _neighbours(groups):
        link = links.between(sender.zone, receiver.zone)
        cards = min(sender.network_bit_per_s, receiver.network_bit_per_s) * links.network_share
        slowest = min(slowest, link.bit_per_s, cards)
        if sender.zone != receiver.zone:
            pair = (sender.zone, receiver.zone)
            crossings[pair] = crossings.get(pair, 0.0) + over_a_link
    return Communication(over_a_link * BITS_PER_BYTE / slowest, crossings)


def _neighbours(groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """Neighbours in the ring; the links inside a group are equal, so one stands for all."""
    yield from ((group, group) for group in groups if group.machines > 1)
    if len(groups) > 1:
        yield from pairwise((*groups, groups[0]))


def _machines(groups: Sequence[Group]) -> int:
    return sum(group.machines for group in groups)
