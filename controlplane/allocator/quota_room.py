"""Room in quotas beside everything that may arrive, and what a refusal reports about it."""

import math
from dataclasses import replace

from msgspec import structs

from controlplane.allocator.counting import at_most, noticed, sidelined, total
from controlplane.allocator.offers import Offer
from controlplane.allocator.state import Allocator, Pool
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import Needs, PoolRef, QuotaKey
from controlplane.clouds.outcomes import QuotaExceeded
from controlplane.planning.market import Quotas
from controlplane.planning.quotas import full_for, room_for, take, taken


def may_come(
    allocator: Allocator, *, but: PoolRef | None = None, with_noticed: bool = False, with_sidelined: bool = False
) -> dict[MachineKind, int]:
    """The most nodes of each kind, with operations in progress and lost answers."""
    found: dict[MachineKind, int] = {}
    for pool in allocator.pools.values():
        count = at_most(pool, with_noticed=with_noticed, with_sidelined=with_sidelined) if pool.ref != but else 0
        if count:
            choice = pool.offer.kind
            found[choice] = found.get(choice, 0) + count
    return found


def most_by_quota(allocator: Allocator, pool: Pool) -> float:
    """The size to which quotas allow the pool to be raised.

    A noticed machine counts until it is gone: the cloud refuses an earlier request.
    """
    quotas = allocator.quotas
    used = taken(quotas, may_come(allocator, but=pool.ref, with_noticed=True))
    return room_for(quotas, pool.offer.kind, quotas.left, used)


class Room:
    """The room that quotas leave for more nodes; each reservation leaves less for the others."""

    def __init__(self, allocator: Allocator) -> None:
        self._quotas = allocator.quotas
        self._used = taken(self._quotas, may_come(allocator, with_noticed=True))

    def take(self, offer: Offer, wanted: int) -> int:
        choice = offer.kind
        fits = int(min(wanted, room_for(self._quotas, choice, self._quotas.left, self._used)))
        take(self._used, self._quotas, choice, fits)
        return fits

    def full_for(self, offer: Offer) -> list[QuotaKey]:
        return full_for(self._quotas, offer.kind, self._quotas.left, self._used)


def is_limited(allocator: Allocator) -> bool:
    """Report whether a quota keeps the job from more nodes."""
    if allocator.ended is not None:
        return False
    if allocator.demand is not None:
        plan = allocator.plans.plan
        return plan is not None and bool(plan.limited_by)
    room = Room(allocator)
    return total(allocator.pools.values()) < allocator.wanted and any(map(room.full_for, allocator.offers))


def blocked_by_quota(allocator: Allocator) -> set[MachineKind]:
    """Kinds whose quotas have no room only because noticed or sidelined nodes still exist."""
    quotas = allocator.quotas
    if not quotas.left or not any(noticed(pool) + sidelined(pool) for pool in allocator.pools.values()):
        return set()
    now, then = (taken(quotas, may_come(allocator, with_noticed=with_noticed)) for with_noticed in (True, False))
    return {
        choice
        for choice in quotas.needs
        if room_for(quotas, choice, quotas.left, now) < 1 <= room_for(quotas, choice, quotas.left, then)
    }


def learn_refusal(
    allocator: Allocator, pool: Pool, asked: int, outcome: QuotaExceeded, now_s: float
) -> tuple[Allocator, int]:
    """Store the room that a refusal reports, and return how many of the requested nodes fit into it.

    `pool` no longer has the refused operation.
    """
    allocator = replace(allocator, quota_refused_s=now_s)
    reported = [each for each in outcome.shortfalls if each.requested > 0]
    if not reported or asked <= 0:
        return allocator, 0
    choice = pool.offer.kind
    keys = {QuotaKey(choice.region if each.is_regional else each.scope, each.metric): each for each in reported}
    needs = {key: math.ceil(each.requested / asked) for key, each in keys.items()}
    quotas = structs.replace(allocator.quotas, needs=_with_needs(allocator, choice, needs))
    used = taken(quotas, may_come(replace(allocator, pools={**allocator.pools, pool.ref: pool}), with_noticed=True))
    left = {key: used.get(key, 0) + int(each.available) for key, each in keys.items()}
    quotas = structs.replace(quotas, left={**quotas.left, **left})
    return replace(allocator, quotas=quotas), int(room_for(quotas, choice, left, used))


def _with_needs(allocator: Allocator, choice: MachineKind, needs: Needs) -> dict[MachineKind, Needs]:
    """The needs of this kind in all zones: a machine type needs the same amounts everywhere."""
    found = dict(allocator.quotas.needs)
    shared = {key for key in needs if key.scope != choice.region}
    for other in {choice, *(offer.kind for offer in allocator.offers)}:
        if other[1:] == choice[1:]:
            here = {key: amount for key, amount in needs.items() if key in shared or key.scope == other.region}
            found[other] = {**found.get(other, {}), **here}
    return found


def learn_quotas(allocator: Allocator, quotas: Quotas, at_s: float) -> Allocator:
    """Store the quotas, unless a later refusal reported newer ones."""
    if allocator.quota_refused_s is not None and at_s <= allocator.quota_refused_s:
        return allocator
    return replace(allocator, quotas=quotas)
