"""Small markets with limits of a plan: current capacity, an on-demand share, an hourly cap, a quota."""

import random
from typing import Final

from msgspec import structs

from benchmarks.plans.exhaustive import every_placement
from benchmarks.plans.markets import PROFILE, generated, market_at
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.shipped import shipped_links
from controlplane.clouds.interface import QuotaKey
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Nodes, Quotas
from controlplane.planning.scoring import score
from controlplane.planning.tuning import Tuning
from messages.criteria import Objective

_HELD, _ON_DEMAND, _CAP, _QUOTA = "held", "on demand", "cap", "quota"
_ALL: Final = "all"
CASES: Final = ("free", _HELD, _ON_DEMAND, _CAP, _QUOTA, _ALL)
ON_DEMAND_PRICE: Final = 3.0
"""On-demand price as a multiple of the spot price."""
QUOTA: Final = 3
CAP: Final = 1.8
"""Hourly cap as a multiple of the cost of the cheapest smallest placement."""


def situation(case: str, seed: int, objective: Objective) -> tuple[Criteria, Market, CurrentCapacity]:
    """A market with so few machines that every placement can be tried."""
    chance = random.Random(seed)
    market = _with_on_demand(market_at(generated(4, seed, 3, ("L4", "A100-40")), shipped_links()))
    criteria = Criteria(min_workers=2, max_workers=6, objective=objective)
    if case in (_ON_DEMAND, _ALL):
        criteria = structs.replace(criteria, on_demand=0.5)
    else:
        spot = {choice: option for choice, option in market.options.items() if choice.spot}
        market = structs.replace(market, options=spot)
    if case in (_QUOTA, _ALL):
        regions = sorted({choice.region for choice in market.options})
        left = {QuotaKey(region, name): QUOTA for region in regions for name in ("L4", "A100-40")}
        needs = {
            choice: {QuotaKey(choice.region, choice.accelerator): option.gpus}
            for choice, option in market.options.items()
            if choice.spot
        }
        market = structs.replace(market, quotas=Quotas(left, needs))
    if case in (_CAP, _ALL):
        fewest = structs.replace(criteria, max_workers=criteria.min_workers)
        least = min(_hourly(market, nodes) for nodes in every_placement(fewest, market, CurrentCapacity()))
        criteria = structs.replace(criteria, max_micro_usd_per_hour=MicroDollars(round(CAP * least)))
    held = _held(criteria, market, chance) if case in (_HELD, _ALL) else {}
    return criteria, market, CurrentCapacity(held=held)


def _with_on_demand(market: Market) -> Market:
    on_demand = [
        structs.replace(
            option,
            choice=option.choice._replace(spot=False),
            micro_usd_per_hour=MicroDollars(round(ON_DEMAND_PRICE * option.micro_usd_per_hour)),
            limit=1,
        )
        for option in market.options.values()
    ]
    found = {option.choice: option for option in (*market.options.values(), *on_demand)}
    return structs.replace(market, options={choice: found[choice] for choice in sorted(found)})


def _held(criteria: Criteria, market: Market, chance: random.Random) -> Nodes:
    """A random possible placement, sometimes worth keeping and sometimes not."""
    return chance.choice(list(every_placement(criteria, market, CurrentCapacity())))


def _hourly(market: Market, nodes: Nodes) -> float:
    found = score(PROFILE, market, nodes, Tuning())
    return float("inf") if found is None else found.estimate.micro_usd_per_hour
