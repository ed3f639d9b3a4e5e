"""Which pool should have how many nodes, in the fleet's order: of all offers, or of those of one choice.

Planned from what is there now, never from an earlier plan, so that a lost answer or a restart cannot mislead it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.allocator.offers import Offer


@dataclass(frozen=True, slots=True)
class Supply:
    """What there is of an offer, and what may be asked of it."""

    held: int = 0
    """Nodes that are there and will stay."""
    coming: int = 0
    """Asked for, and not there yet."""
    aside: int = 0
    """Replaced, but still there: their slots are not free."""
    spare: int = 0
    """Of those that are held: nobody would miss them."""
    settled: bool = True
    """No operation is under way, so that it can be changed."""
    reachable: bool = True
    """Its cluster is there and takes orders."""
    blocked: bool = False
    """Workers cannot start in its cluster."""
    room: int | None = None
    """The most nodes that may be asked of it now, if fewer than it offers."""
    granted: bool = False
    """What is coming was granted, whatever the zone refuses now."""
    busy_until_s: float | None = None
    """It could not be changed several times in a row: until then it is not tried again."""
    closed_until_s: float | None = None
    """Until then it has nothing more to give."""
    distrusted_until_s: float | None = None
    """A node was taken there lately, or nobody answered: until then it comes last, and the longer ago the earlier."""


Fits = Callable[[Offer, int], int]
"""How many of so many more nodes have room; they take it."""


def _all_fit(_offer: Offer, wanted: int) -> int:
    return wanted


def targets_in_order(
    wanted: int,
    offers: Sequence[Offer],
    pools: Mapping[Offer, Supply],
    now_s: float,
    fits: Fits = _all_fit,
) -> dict[Offer, int]:
    """Keeps what there is, adds where it is liked best, and gives up first what has not come yet.

    May come to more than wanted, when nodes that are in use are too many: those go only when they are released.
    """
    targets = {offer: kept(pools[offer], now_s) for offer in offers}
    missing = wanted - sum(targets.values())
    rested_zones_first = sorted(offers, key=lambda offer: _distrusted_until_s(pools[offer], now_s))
    if missing > 0:
        _add(targets, rested_zones_first, pools, missing, now_s, fits)
    else:
        _give_up(targets, rested_zones_first[::-1], pools, -missing)
    return targets


def kept(supply: Supply, now_s: float) -> int:
    """Nodes that are there, and those that may be counted on to come."""
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


def _distrusted_until_s(supply: Supply, now_s: float) -> float:
    until_s = supply.distrusted_until_s
    return until_s if until_s is not None and now_s < until_s else -math.inf


def _is_before(now_s: float, until_s: float | None) -> bool:
    return until_s is not None and now_s < until_s
