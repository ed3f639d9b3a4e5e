"""The number of nodes of each pool, in the fleet's order: for all offers, or for those of one choice.

Computed from the current state, never from an earlier plan, so that a lost answer or a restart cannot mislead it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.allocator.offers import Offer


@dataclass(frozen=True, slots=True)
class Supply:
    """The nodes of an offer, and what may be requested from it."""

    held: int = 0
    """Nodes that exist and will stay."""
    coming: int = 0
    """Nodes that are requested and do not exist yet."""
    aside: int = 0
    """Sidelined nodes: their slots are not free."""
    spare: int = 0
    """Held nodes that are not used."""
    settled: bool = True
    """No operation is in progress, so the pool can be changed."""
    reachable: bool = True
    """Its cluster is ready and the offer is usable."""
    blocked: bool = False
    """The job's workers cannot start in its cluster."""
    room: int | None = None
    """The most nodes that may be requested now, if fewer than it offers."""
    granted: bool = False
    """The cloud granted the nodes that are coming, even if the zone refuses more now."""
    busy_until_s: float | None = None
    """End of the pause after several failed changes in a row."""
    closed_until_s: float | None = None
    """When requests are possible again after a shortage."""
    cooldown_until_s: float | None = None
    """End of the cooldown after a preempted node or a missing answer: until then the offer comes last."""


Fits = Callable[[Offer, int], int]
"""Reserves quota for at most so many more nodes, and returns how many fit."""


def _all_fit(_offer: Offer, wanted: int) -> int:
    return wanted


def targets_in_order(
    wanted: int,
    offers: Sequence[Offer],
    pools: Mapping[Offer, Supply],
    now_s: float,
    fits: Fits = _all_fit,
) -> dict[Offer, int]:
    """Keep what exists, add in the fleet's order, and give up nodes that have not come yet first.

    The sum may exceed `wanted`: nodes in use are removed only when the job releases them.
    """
    targets = {offer: expected(pools[offer], now_s) for offer in offers}
    missing = wanted - sum(targets.values())
    cooldown_zones_last = sorted(offers, key=lambda offer: _cooldown_until_s(pools[offer], now_s))
    if missing > 0:
        _add(targets, cooldown_zones_last, pools, missing, now_s, fits)
    else:
        _give_up(targets, cooldown_zones_last[::-1], pools, -missing)
    return targets


def expected(supply: Supply, now_s: float) -> int:
    """Held nodes and those that will probably come."""
    is_refused = _is_before(now_s, supply.closed_until_s) and not supply.granted
    hopeless = supply.settled and (supply.blocked or is_refused)
    return supply.held if hopeless else supply.held + supply.coming


def most_of(offer: Offer, supply: Supply) -> int:
    most = offer.max_nodes - supply.aside
    return most if supply.room is None else min(supply.room, most)


def has_no_more(supply: Supply, now_s: float) -> bool:
    return _is_before(now_s, supply.closed_until_s) or _is_before(now_s, supply.busy_until_s)


def _add(
    targets: dict[Offer, int],
    offers: Sequence[Offer],
    pools: Mapping[Offer, Supply],
    missing: int,
    now_s: float,
    fits: Fits,
) -> None:
    for offer in offers:
        supply = pools[offer]
        if supply.settled and supply.reachable and not has_no_more(supply, now_s):
            more = fits(offer, max(0, min(missing, most_of(offer, supply) - targets[offer])))
            targets[offer] += more
            missing -= more


def _give_up(targets: dict[Offer, int], offers: Sequence[Offer], pools: Mapping[Offer, Supply], surplus: int) -> None:
    free = [offer for offer in offers if pools[offer].settled]
    for offer in free:
        less = max(0, min(surplus, targets[offer] - pools[offer].held))
        targets[offer] -= less
        surplus -= less
    for offer in free:
        less = min(surplus, pools[offer].spare)
        targets[offer] -= less
        surplus -= less


def _cooldown_until_s(supply: Supply, now_s: float) -> float:
    until_s = supply.cooldown_until_s
    return until_s if until_s is not None and now_s < until_s else -math.inf


def _is_before(now_s: float, until_s: float | None) -> bool:
    return until_s is not None and now_s < until_s
