"""The cooldown of zones: a zone that preempted a machine recently comes last.

Among zones in cooldown, the one with the oldest preemption comes first. If the job lost all its machines in a zone, the
plan uses that zone only for workers that do not fit in other zones. The plan is not limited if the job still has
machines in the zone, because another zone may be far from them. It is not limited either if the job could not run
otherwise: other zones may be too expensive, or egress between them may cost too much.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from controlplane.allocator.availability import availability_of
from controlplane.allocator.state import Allocator
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Option
from controlplane.planning.quotas import allowed, room_for, take, taken
from controlplane.planning.scoring import how_many, is_affordable, limit_of, score
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

_TUNING = Tuning()


def cooldown_ends(allocator: Allocator, now_s: float) -> dict[MachineKind, float]:
    """When the cooldown of each choice ends; choices without a cooldown are left out."""
    found: dict[MachineKind, float] = {}
    for offer in allocator.offers:
        until_s = availability_of(allocator, offer.kind).cooldown_until_s
        if until_s is not None and now_s < until_s:
            choice = offer.kind
            found[choice] = max(until_s, found.get(choice, until_s))
    return found


def cooldown_zones_last(
    criteria: Criteria, profile: Profile, market: Market, current: CurrentCapacity, taken: Mapping[MachineKind, float]
) -> Market:
    """The market with zones in cooldown that lost all machines limited to the workers that fit nowhere else."""
    there = current.committed()
    emptied = sorted(
        (until_s, choice) for choice, until_s in taken.items() if choice in market.options and choice not in there
    )
    if not emptied:
        return market
    room = _Room(criteria, market, current)
    for option in _cheapest_first(market.options.values()):
        if option.choice not in taken:
            room.fill(option)
    if room.is_enough:
        limits = {choice: 0 for _, choice in emptied}
    else:
        limits = {choice: room.fill(market.options[choice]) for _, choice in emptied}
    less = {choice: structs.replace(market.options[choice], limit=limit) for choice, limit in limits.items()}
    quiet = structs.replace(market, options={**market.options, **less})
    return quiet if _can_run(criteria, profile, quiet, current) else market


def _can_run(criteria: Criteria, profile: Profile, market: Market, current: CurrentCapacity) -> bool:
    """Report whether the budget pays for `min_workers` with egress: the cheapest ones, or in one region or zone."""
    if criteria.max_micro_usd_per_hour is None:
        return True
    fewest = structs.replace(criteria, max_workers=criteria.min_workers)
    return any(_is_paid(fewest, profile, market, current, options) for options in _groups(market))


def _groups(market: Market) -> Iterator[list[Option]]:
    options = _cheapest_first(market.options.values())
    yield options
    for place in dict.fromkeys(place for each in options for place in (each.choice.region, each.choice.zone)):
        yield [each for each in options if place in (each.choice.region, each.choice.zone)]


def _is_paid(
    criteria: Criteria, profile: Profile, market: Market, current: CurrentCapacity, options: Iterable[Option]
) -> bool:
    room = _Room(criteria, market, current)
    for option in options:
        room.fill(option)
    found = (score(profile, market, nodes, _TUNING) for nodes in room.worlds())
    return any(each is not None and is_affordable(criteria, each) for each in found)


def _cheapest_first(options: Iterable[Option]) -> list[Option]:
    return sorted(options, key=lambda option: option.micro_usd_per_hour)


class _Room:
    """Workers that are missing to `max_workers`, by accelerator, spot and on demand. Egress is not counted."""

    def __init__(self, criteria: Criteria, market: Market, current: CurrentCapacity) -> None:
        self._market, self._current = market, current
        self._there = current.committed()
        self._nodes = {choice: count for choice, count in self._there.items() if choice in market.options}
        self._limits = allowed(market.quotas, current.held)
        self._used = taken(market.quotas, self._there)
        types = {choice.accelerator for choice in market.options}
        self._types = {choice.accelerator for choice in self._there} & types or types
        """A world has one type of accelerator: while the job has nodes, other types do not count."""
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
        """One complete set of nodes for each accelerator that has enough of them."""
        for name in self._types:
            if max(self._missing[name, True], self._missing[name, False]) <= 0:
                yield {choice: count for choice, count in self._nodes.items() if choice.accelerator == name}

    def fill(self, option: Option) -> int:
        """Add as many nodes of this option as fit, and return their number."""
        choice, price = option.choice, option.micro_usd_per_hour
        fits = min(
            self._missing[choice.accelerator, choice.spot],
            limit_of(self._market, self._current, choice) - self._there.get(choice, 0),
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
