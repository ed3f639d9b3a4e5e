"""From where the job is to where it should be, without ever having more than it may.

What is held or on its way counts until it is gone: a node that was asked for may still come. So only what fits beside
everything that may be there is asked for. What runs is let go as its successors are there, if it may stay so long; room
is made for them where there is none.
"""

import math

from controlplane.catalog.kinds import MachineKind
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Nodes, Present
from controlplane.planning.quotas import allowed, room_for, take, taken
from controlplane.planning.scoring import how_many


def first_step(
    criteria: Criteria,
    market: Market,
    present: Present,
    target: Nodes,
    egress_micro_usd_per_hour: int,
    *,
    may_stay: bool = False,
) -> dict[MachineKind, int]:
    """What to aim at now: more only beside what may be there; less at once, unless what runs may stay.

    Machines of another accelerator go first: a world has one type.
    """
    there = present.committed()
    asked = {choice: min(count, target.get(choice, 0)) for choice, count in there.items()}
    changes_type = {choice.accelerator for choice in there} - {choice.accelerator for choice in target}
    if not changes_type and all(choice in market.options for choice in there):
        _raise(asked, there, criteria, market, present, target, egress_micro_usd_per_hour)
        if may_stay:
            _hold_on(asked, there, criteria, present, target)
    return {choice: count for choice, count in sorted(asked.items()) if count}


def _raise(
    asked: dict[MachineKind, int],
    there: Nodes,
    criteria: Criteria,
    market: Market,
    present: Present,
    target: Nodes,
    egress_micro_usd_per_hour: int,
) -> None:
    room = criteria.max_workers - sum(there.values())
    money = _money_left(criteria, market, there, egress_micro_usd_per_hour)
    limits, used = allowed(market.quotas, present.held), taken(market.quotas, there)
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


def _hold_on(asked: dict[MachineKind, int], there: Nodes, criteria: Criteria, present: Present, target: Nodes) -> None:
    """Of what is to go as many stay as have no successor yet, but for those whose room the successors need.

    Where so few would be left that the job cannot run, all go: it has to wait for the others either way.
    """
    surplus = {choice: count - target.get(choice, 0) for choice, count in there.items()}
    awaited = sum(max(0, count - present.held.get(choice, 0)) for choice, count in target.items())
    missing = sum(max(0, count - there.get(choice, 0)) for choice, count in target.items())
    raised = sum(max(0, count - there.get(choice, 0)) for choice, count in asked.items())
    too_many = sum(count for count in surplus.values() if count > 0)
    stay = min(awaited, too_many)
    if missing and not raised and awaited == missing and stay == too_many:
        held = sum(present.held.values())
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
