"""The first step from the current nodes to the planned ones, within all limits at any time.

Nodes that are held or coming count until they are gone: a requested node may still come. So a step requests only
nodes that fit beside them. Running nodes leave when their replacements have come, if they may stay until then. If there
is no room for replacements, some leave first.
"""

import math

from controlplane.catalog.kinds import MachineKind
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.quotas import allowed, room_for, take, taken
from controlplane.planning.scoring import how_many


def first_step(
    criteria: Criteria,
    market: Market,
    current: CurrentCapacity,
    target: Nodes,
    egress_micro_usd_per_hour: int,
    *,
    may_stay: bool = False,
) -> dict[MachineKind, int]:
    """The targets for now: raises fit beside all nodes that may exist; lower targets apply at once without `may_stay`.

    Machines of another accelerator are removed first: a world has one type.
    """
    there = current.committed()
    asked = {choice: min(count, target.get(choice, 0)) for choice, count in there.items()}
    changes_type = {choice.accelerator for choice in there} - {choice.accelerator for choice in target}
    if not changes_type and all(choice in market.options for choice in there):
        _raise(asked, there, criteria, market, current, target, egress_micro_usd_per_hour)
        if may_stay:
            _keep_until_replaced(asked, there, criteria, current, target)
    return {choice: count for choice, count in sorted(asked.items()) if count}


def _raise(
    asked: dict[MachineKind, int],
    there: Nodes,
    criteria: Criteria,
    market: Market,
    current: CurrentCapacity,
    target: Nodes,
    egress_micro_usd_per_hour: int,
) -> None:
    room = criteria.max_workers - sum(there.values())
    money = _money_left(criteria, market, there, egress_micro_usd_per_hour)
    limits, used = allowed(market.quotas, current.held), taken(market.quotas, there)
    for choice, count in sorted(target.items()):
        option = market.options[choice]
        by_quota = room_for(market.quotas, choice, limits, used)
        by_money = how_many(money, option.micro_usd_per_hour)
        more = min(count - there.get(choice, 0), room, by_quota, by_money)
        if more > 0:
            asked[choice] = there.get(choice, 0) + int(more)
            take(used, market.quotas, choice, int(more))
            room -= int(more)
            money -= int(more) * option.micro_usd_per_hour


def _keep_until_replaced(
    asked: dict[MachineKind, int], there: Nodes, criteria: Criteria, current: CurrentCapacity, target: Nodes
) -> None:
    """Keep one surplus node for each replacement that has not come, except those whose room the replacements need.

    If too few would be left to run, all surplus nodes leave: the job must wait for the replacements anyway.
    """
    surplus = {choice: count - target.get(choice, 0) for choice, count in there.items()}
    awaited = sum(max(0, count - current.held.get(choice, 0)) for choice, count in target.items())
    missing = sum(max(0, count - there.get(choice, 0)) for choice, count in target.items())
    raised = sum(max(0, count - there.get(choice, 0)) for choice, count in asked.items())
    too_many = sum(count for count in surplus.values() if count > 0)
    stay = min(awaited, too_many)
    if missing and not raised and awaited == missing and stay == too_many:
        held = sum(current.held.values())
        stay = stay - min(missing, held - criteria.min_workers) if held > criteria.min_workers else 0
    for choice, count in sorted(surplus.items()):
        kept = max(0, min(stay, count))
        asked[choice] += kept
        stay -= kept


def _money_left(criteria: Criteria, market: Market, there: Nodes, egress_micro_usd_per_hour: int) -> float:
    if criteria.max_micro_usd_per_hour is None:
        return math.inf
    machines = sum(count * market.options[choice].micro_usd_per_hour for choice, count in there.items())
    return criteria.max_micro_usd_per_hour - egress_micro_usd_per_hour - machines
