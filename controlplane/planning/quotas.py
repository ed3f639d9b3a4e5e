"""Arithmetic of quotas: what nodes use of each, and how many more nodes fit."""

import math
from collections.abc import Mapping

from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import QuotaKey
from controlplane.planning.market import CurrentCapacity, Market, Nodes, Quotas

Amounts = Mapping[QuotaKey, float]


def taken(quotas: Quotas, nodes: Nodes) -> dict[QuotaKey, int]:
    used: dict[QuotaKey, int] = {}
    for choice, count in nodes.items():
        take(used, quotas, choice, count)
    return used


def take(used: dict[QuotaKey, int], quotas: Quotas, choice: MachineKind, count: int) -> None:
    for key, amount in quotas.needs.get(choice, {}).items():
        used[key] = used.get(key, 0) + count * amount


def allowed(quotas: Quotas, held: Nodes) -> dict[QuotaKey, int]:
    """The most that may be used. Held nodes exist: a quota that became smaller only prevents more."""
    there = taken(quotas, held)
    return {key: max(left, there.get(key, 0)) for key, left in quotas.left.items()}


def room_for(quotas: Quotas, choice: MachineKind, limits: Amounts, used: Amounts) -> float:
    """How many more nodes of this choice fit beside what is used; infinite if no quota limits them."""
    fits = (
        (limits[key] - used.get(key, 0)) // amount
        for key, amount in quotas.needs.get(choice, {}).items()
        if key in limits
    )
    return max(0, min(fits, default=math.inf))


def limiting(market: Market, current: CurrentCapacity, nodes: Nodes) -> tuple[QuotaKey, ...]:
    """Quotas without room for another node that zones and the type of accelerator would allow."""
    quotas, types = market.quotas, {choice.accelerator for choice in nodes}
    limits, used = allowed(quotas, current.held), taken(quotas, nodes)
    found: dict[QuotaKey, None] = {}
    for choice, option in market.options.items():
        is_open = choice not in current.stocked_out and nodes.get(choice, 0) < option.limit
        if is_open and (not types or choice.accelerator in types):
            found |= dict.fromkeys(full_for(quotas, choice, limits, used))
    return tuple(found)


def too_small_for(wanted: int, market: Market, current: CurrentCapacity) -> tuple[QuotaKey, ...]:
    """Quotas that keep a job from so many nodes of one accelerator, at any price."""
    filled = [_filled(wanted, name, market, current) for name in {choice.accelerator for choice in market.options}]
    most = max(filled, key=lambda nodes: sum(nodes.values()), default={})
    return limiting(market, current, most) if sum(most.values()) < wanted else ()


def _filled(wanted: int, accelerator: str, market: Market, current: CurrentCapacity) -> dict[MachineKind, int]:
    quotas = market.quotas
    nodes = {choice: count for choice, count in current.expected().items() if choice.accelerator == accelerator}
    limits, used = allowed(quotas, current.held), taken(quotas, nodes)
    for choice, option in market.options.items():
        if choice.accelerator == accelerator and choice not in current.stocked_out:
            missing = min(wanted - sum(nodes.values()), option.limit - nodes.get(choice, 0))
            more = int(max(0, min(missing, room_for(quotas, choice, limits, used))))
            nodes[choice] = nodes.get(choice, 0) + more
            take(used, quotas, choice, more)
    return nodes


def full_for(quotas: Quotas, choice: MachineKind, limits: Amounts, used: Amounts) -> list[QuotaKey]:
    """Quotas without room for another node of this choice."""
    needs = quotas.needs.get(choice, {})
    return [key for key, amount in needs.items() if key in limits and used.get(key, 0) + amount > limits[key]]
