"""The supply of each offer: its nodes, and what may be requested from it."""

import math

from controlplane.allocator.availability import availability_of
from controlplane.allocator.counting import expected, held, is_settled, sidelined, spare
from controlplane.allocator.fleet_order import Supply
from controlplane.allocator.offers import Offer, pool_ref
from controlplane.allocator.starts import is_blocked, room_of
from controlplane.allocator.state import Allocator, Pool

Supplies = dict[Offer, Supply]


def supplies_of(allocator: Allocator, now_s: float) -> Supplies:
    return {offer: supply_of(allocator, offer, now_s) for offer in known_offers(allocator)}


def known_offers(allocator: Allocator) -> list[Offer]:
    """Offers of the fleet, then those of found pools that match none of them."""
    found = [pool.offer for pool in allocator.pools.values() if pool.offer.pool is not None]
    return [*allocator.offers, *found]


def supply_of(allocator: Allocator, offer: Offer, now_s: float) -> Supply:
    ref = pool_ref(allocator.job, offer)
    pool = allocator.pools.get(ref, Pool(ref, offer))
    if pool.stopping:
        return Supply(settled=False)
    known = availability_of(allocator, offer.kind)
    blocked = is_blocked(allocator, offer.cluster, now_s)
    usable = offer.pool is None and not pool.broken and pool.hanging_s is None and not blocked
    is_tried = offer.cluster in allocator.blocks
    return Supply(
        held=held(pool),
        coming=max(0, expected(pool) - held(pool)),
        aside=sidelined(pool),
        spare=len(spare(allocator, pool)),
        settled=is_settled(pool),
        reachable=allocator.clusters.get(offer.cluster, False) and usable,
        blocked=blocked,
        room=room_of(allocator, offer) if is_tried else None,
        granted=pool.granted,
        busy_until_s=pool.retry_s if pool.failures >= allocator.settings.busy_tries else None,
        closed_until_s=known.closed_until_s,
        cooldown_until_s=math.inf if is_tried else known.cooldown_until_s,
    )
