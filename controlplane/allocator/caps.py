"""What a pool may be raised to beside everything that may come elsewhere: asked again where it is raised.

A plan knows what is held and expected. An answer that was lost, or a slot that the cloud may fill again, can bring
more: against the caps all of that is counted.
"""

import math

from controlplane.allocator.choices import choice_of
from controlplane.allocator.counting import at_most, ceiling, doomed, sidelined, total
from controlplane.allocator.demand import Demand
from controlplane.allocator.state import Allocator, Pool
from controlplane.clouds.interface import PoolRef
from controlplane.planning.market import Choice, Market, Nodes, QuotaKey
from controlplane.planning.scoring import gpus_by_quota, how_many, score
from controlplane.planning.tuning import Tuning

_TUNING = Tuning()


def most_for(allocator: Allocator, pool: Pool, wanted: int) -> int:
    """What the pool may aim at for as many nodes as wanted, or fewer; what it aims at already is not in question.

    A node that is replaced and kept has its slot beside them: it costs money and quota, but has no worker.
    """
    aside = sidelined(pool)
    room = ceiling(allocator) - total(allocator.pools.values(), but=pool.ref)
    most = min(min(wanted, room) + aside, pool.offer.max_nodes)
    if allocator.demand is None or most <= pool.target:
        return most
    choice, others = choice_of(pool.offer), may_come(allocator, but=pool.ref, with_sidelined=True)
    market = allocator.market
    if market is None or choice not in market.options or _is_in_the_way(others, choice, market):
        return pool.target
    option, key = market.options[choice], QuotaKey(choice.region, choice.accelerator, choice.spot)
    most = int(min(most, option.limit - others.get(choice, 0), how_many(_left(allocator, key, pool.ref), option.gpus)))
    return _affordable(allocator.demand, market, others, choice, pool.target, most)


def may_come(
    allocator: Allocator, *, but: PoolRef | None = None, with_doomed: bool = False, with_sidelined: bool = False
) -> dict[Choice, int]:
    """Nodes at most, counting operations under way and doubts."""
    found: dict[Choice, int] = {}
    for pool in allocator.pools.values():
        count = at_most(pool, with_doomed=with_doomed, with_sidelined=with_sidelined) if pool.ref != but else 0
        if count:
            choice = choice_of(pool.offer)
            found[choice] = found.get(choice, 0) + count
    return found


def held_up(allocator: Allocator) -> set[Choice]:
    """Where the quota would have room for one more, but for nodes that were noticed or replaced and are still there."""
    market = allocator.market
    if market is None or not any(doomed(pool) + sidelined(pool) for pool in allocator.pools.values()):
        return set()
    now, then = (gpus_by_quota(market, may_come(allocator, with_doomed=with_doomed)) for with_doomed in (True, False))
    found = set()
    for choice, option in market.options.items():
        key = QuotaKey(choice.region, choice.accelerator, choice.spot)
        room = market.quotas.get(key, math.inf) - option.gpus
        if then.get(key, 0) <= room < now.get(key, 0):
            found.add(choice)
    return found


def money_per_hour(demand: Demand, market: Market, nodes: Nodes) -> int:
    """Micro-dollars, for the machines and for what they would send; what has no price is left out."""
    priced = {choice: count for choice, count in nodes.items() if choice in market.options}
    found = score(demand.profile, market, priced, _TUNING)
    if found is not None:
        return found.estimate.micro_usd_per_hour
    return sum(count * market.options[choice].micro_usd_per_hour for choice, count in priced.items())


def _left(allocator: Allocator, key: QuotaKey, but: PoolRef) -> float:
    """A machine that was noticed counts until it is gone: who asks sooner is refused, and waits for long."""
    market = allocator.market
    if market is None or key not in market.quotas:
        return math.inf
    return market.quotas[key] - gpus_by_quota(market, may_come(allocator, but=but, with_doomed=True)).get(key, 0)


def _is_in_the_way(others: Nodes, choice: Choice, market: Market) -> bool:
    """A world has one type of accelerator; and what has no price cannot be counted, so that it goes first."""
    return any(other.accelerator != choice.accelerator or other not in market.options for other in others)


def _affordable(demand: Demand, market: Market, others: Nodes, choice: Choice, fits: int, most: int) -> int:
    cap = demand.criteria.max_micro_usd_per_hour
    if cap is None:
        return most

    def is_too_much(size: int) -> bool:
        return money_per_hour(demand, market, {**others, choice: others.get(choice, 0) + size}) > cap

    if most <= fits or not is_too_much(most):
        return most
    while fits + 1 < most:
        tried = (fits + most) // 2
        fits, most = (fits, tried) if is_too_much(tried) else (tried, most)
    return fits
