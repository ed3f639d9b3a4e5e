"""From where the job is to where it should be, without ever having more than it may.

What is held or on its way counts until it is gone: a node that was asked for may still come. So room is made first,
and only what fits beside everything that may be there is asked for.
"""

import math

from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Choice, Market, Nodes, Present, QuotaKey
from controlplane.planning.scoring import gpus_by_quota, quota_of


def first_step(
    criteria: Criteria, market: Market, present: Present, target: Nodes, egress_micro_usd_per_hour: int
) -> dict[Choice, int]:
    """What to aim at now: less at once where less is wanted, more only beside what may be there.

    Machines of another accelerator go first: a world has one type.
    """
    there = present.committed()
    asked = {choice: min(count, target.get(choice, 0)) for choice, count in there.items()}
    changes_type = {choice.accelerator for choice in there} - {choice.accelerator for choice in target}
    if not changes_type and all(choice in market.options for choice in there):
        _raise(asked, there, criteria, market, present, target, egress_micro_usd_per_hour)
    return {choice: count for choice, count in sorted(asked.items()) if count}


def _raise(
    asked: dict[Choice, int],
    there: Nodes,
    criteria: Criteria,
    market: Market,
    present: Present,
    target: Nodes,
    egress_micro_usd_per_hour: int,
) -> None:
    room = criteria.max_workers - sum(there.values())
    money = _money_left(criteria, market, there, egress_micro_usd_per_hour)
    gpus = dict(gpus_by_quota(market, there))
    for choice, count in sorted(target.items()):
        option = market.options[choice]
        key = QuotaKey(choice.region, choice.accelerator, choice.spot)
        by_quota = (quota_of(market, present, key) - gpus.get(key, 0)) // option.gpus
        more = min(count - there.get(choice, 0), room, by_quota, money // option.micro_usd_per_hour)
        if more > 0:
            asked[choice] = there.get(choice, 0) + int(more)
            gpus[key] = gpus.get(key, 0) + int(more) * option.gpus
            room -= int(more)
            money -= int(more) * option.micro_usd_per_hour


def _money_left(criteria: Criteria, market: Market, there: Nodes, egress_micro_usd_per_hour: int) -> float:
    if criteria.max_micro_usd_per_hour is None:
        return math.inf
    machines = sum(count * market.options[choice].micro_usd_per_hour for choice, count in there.items())
    return criteria.max_micro_usd_per_hour - egress_micro_usd_per_hour - machines
