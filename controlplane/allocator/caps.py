"""The size to which a pool may be raised, given everything that may arrive in other pools.

A plan knows the nodes that are held and expected. A lost answer, or a slot that the cloud may refill, can bring more.
The caps count all of them, so they are checked again for each raise.
"""

from controlplane.allocator.counting import ceiling, sidelined, total
from controlplane.allocator.demand import Demand
from controlplane.allocator.quota_room import may_come, most_by_quota
from controlplane.allocator.state import Allocator, Pool
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.market import Market, Nodes
from controlplane.planning.scoring import score
from controlplane.planning.tuning import Tuning

_TUNING = Tuning()


def most_for(allocator: Allocator, pool: Pool, wanted: int) -> int:
    """The largest target that the caps allow for `wanted` nodes; they do not lower the pool's current target.

    Each sidelined node needs a slot of its own: it costs money and quota, but has no worker.
    """
    aside = sidelined(pool)
    room = ceiling(allocator) - total(allocator.pools.values(), but=pool.ref)
    most = min(min(wanted, room) + aside, pool.offer.max_nodes)
    if most > pool.target:
        most = int(min(most, most_by_quota(allocator, pool)))
    if allocator.demand is None or most <= pool.target:
        return most
    choice, others = pool.offer.kind, may_come(allocator, but=pool.ref, with_sidelined=True)
    market = allocator.market
    if market is None or choice not in market.options or _is_in_the_way(others, choice, market):
        return pool.target
    most = min(most, market.options[choice].limit - others.get(choice, 0))
    return _affordable(allocator.demand, market, others, choice, pool.target, most)


def money_per_hour(demand: Demand, market: Market, nodes: Nodes) -> int:
    """Micro-dollars an hour for machines and their egress; machines without a price are left out."""
    priced = {choice: count for choice, count in nodes.items() if choice in market.options}
    found = score(demand.profile, market, priced, _TUNING)
    if found is not None:
        return found.estimate.micro_usd_per_hour
    return sum(count * market.options[choice].micro_usd_per_hour for choice, count in priced.items())


def _is_in_the_way(others: Nodes, choice: MachineKind, market: Market) -> bool:
    """Report whether other nodes block this choice: they have another accelerator, or no price."""
    return any(other.accelerator != choice.accelerator or other not in market.options for other in others)


def _affordable(demand: Demand, market: Market, others: Nodes, choice: MachineKind, fits: int, most: int) -> int:
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
