"""Zones that took a machine lately are asked last, and of them the one first where it is longest ago.

Where the job has lost all its machines of a zone, the plan counts on that zone only for workers that have no room in
calm ones. Where it still has some the plan is free: a calm zone may be far from them, and cost more than it is worth.
So it is where the job could not run otherwise: calm zones may be too dear for as many as it needs, or too far from each
other for what they send.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from controlplane.allocator.availability import availability_of
from controlplane.allocator.state import Allocator
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import Market, Option, Present
from controlplane.planning.quotas import allowed, room_for, take, taken
from controlplane.planning.scoring import how_many, is_affordable, limit_of, score
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

_TUNING = Tuning()


def taken_lately(allocator: Allocator, now_s: float) -> dict[MachineKind, float]:
    """Until when each is not calm: the sooner, the better the chance."""
    found: dict[MachineKind, float] = {}
    for offer in allocator.offers:
        until_s = availability_of(allocator, offer.kind).distrusted_until_s
        if until_s is not None and now_s < until_s:
            choice = offer.kind
            found[choice] = max(until_s, found.get(choice, until_s))
    return found


def rested_zones_first(
    criteria: Criteria, profile: Profile, market: Market, present: Present, taken: Mapping[MachineKind, float]
) -> Market:
    """With no more of the zones that took all their machines than have no room in others."""
    there = present.committed()
    emptied = sorted(
        (until_s, choice) for choice, until_s in taken.items() if choice in market.options and choice not in there
    )
    if not emptied:
        return market
    room = _Room(criteria, market, present)
    for option in _cheapest_first(market.options.values()):
        if option.choice not in taken:
            room.fill(option)
    if room.is_enough:
        limits = {choice: 0 for _, choice in emptied}
    else:
        limits = {choice: room.fill(market.options[choice]) for _, choice in emptied}
    less = {choice: structs.replace(market.options[choice], limit=limit) for choice, limit in limits.items()}
    calm = structs.replace(market, options={**market.options, **less})
    return calm if _lets_it_run(criteria, profile, calm, present) else market


def _lets_it_run(criteria: Criteria, profile: Profile, market: Market, present: Present) -> bool:
    """As many as it needs can be paid with what they send: where they are cheapest, or in a region or a zone alone."""
    if criteria.max_micro_usd_per_hour is None:
        return True
    fewest = structs.replace(criteria, max_workers=criteria.min_workers)
    return any(_is_paid(fewest, profile, market, present, options) for options in _groups(market))


def _groups(market: Market) -> Iterator[list[Option]]:
    options = _cheapest_first(market.options.values())
    yield options
    for place in dict.fromkeys(place for each in options for place in (each.choice.region, each.choice.zone)):
        yield [each for each in options if place in (each.choice.region, each.choice.zone)]


def _is_paid(criteria: Criteria, profile: Profile, market: Market, present: Present, options: Iterable[Option]) -> bool:
    room = _Room(criteria, market, present)
    for option in options:
        room.fill(option)
    found = (score(profile, market, nodes, _TUNING) for nodes in room.worlds())
    return any(each is not None and is_affordable(criteria, each) for each in found)


def _cheapest_first(options: Iterable[Option]) -> list[Option]:
    return sorted(options, key=lambda option: option.micro_usd_per_hour)


class _Room:
    """What is missing to as many workers as there may be, of each accelerator, spot and on demand.

    What is sent between zones is not counted as money here.
    """

    def __init__(self, criteria: Criteria, market: Market, present: Present) -> None:
        self._market, self._present = market, present
        self._there = present.committed()
        self._nodes = {choice: count for choice, count in self._there.items() if choice in market.options}
        self._limits = allowed(market.quotas, present.held)
        self._used = taken(market.quotas, self._there)
        types = {choice.accelerator for choice in market.options}
        self._types = {choice.accelerator for choice in self._there} & types or types
        """A world has one; while it has some, others are no room for it."""
        on_demand = math.ceil(criteria.on_demand * criteria.max_workers - 1e-9)
        self._missing = {(each, False): on_demand for each in types}
        self._missing |= {(each, True): criteria.max_workers - on_demand for each in types}
        cap = criteria.max_micro_usd_per_hour
        self._money: dict[str, float] = dict.fromkeys(types, math.inf if cap is None else cap)
        for choice, count in self._there.items():
            if choice in market.options:
                self._missing[choice.accelerator, choice.spot] -= count
                self._money[choice.accelerator] -= count * market.options[choice].micro_usd_per_hour

    @property
    def is_enough(self) -> bool:
        return any(True for _ in self.worlds())

    def worlds(self) -> Iterator[dict[MachineKind, int]]:
        """Of those accelerators of which enough are there."""
        for name in self._types:
            if max(self._missing[name, True], self._missing[name, False]) <= 0:
                yield {choice: count for choice, count in self._nodes.items() if choice.accelerator == name}

    def fill(self, option: Option) -> int:
        """How many of these come to what is there."""
        choice, price = option.choice, option.micro_usd_per_hour
        fits = min(
            self._missing[choice.accelerator, choice.spot],
            limit_of(self._market, self._present, choice) - self._there.get(choice, 0),
            room_for(self._market.quotas, choice, self._limits, self._used),
            how_many(self._money[choice.accelerator], price),
        )
        more = max(0, int(fits))
        self._missing[choice.accelerator, choice.spot] -= more
        take(self._used, self._market.quotas, choice, more)
        self._money[choice.accelerator] -= more * price
        if more:
            self._nodes[choice] = self._nodes.get(choice, 0) + more
        return more
