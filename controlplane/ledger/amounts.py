"""Exact amounts of money: whole numbers in fine units, rounded only when they are shown."""

from collections.abc import Mapping
from typing import TypeVar

from controlplane.catalog.links import BYTES_PER_GIB
from controlplane.catalog.money import MicroDollars

K = TypeVar("K")

MS_PER_HOUR = 3_600_000


def node_money(cost: int) -> MicroDollars:
    """Money of a cost in micro-dollars an hour × milliseconds."""
    return MicroDollars((2 * cost + MS_PER_HOUR) // (2 * MS_PER_HOUR))


def egress_money(cost: int) -> MicroDollars:
    """Money of a cost in micro-dollars a GiB × bytes."""
    return MicroDollars((2 * cost + BYTES_PER_GIB) // (2 * BYTES_PER_GIB))


def node_money_by(costs: Mapping[K, int]) -> dict[K, MicroDollars]:
    """Money by key: each within a micro-dollar of its cost, and in total exactly the money of all costs."""
    money: dict[K, MicroDollars] = {}
    before = 0
    for key, cost in costs.items():
        money[key] = MicroDollars(node_money(before + cost) - node_money(before))
        before += cost
    return money
