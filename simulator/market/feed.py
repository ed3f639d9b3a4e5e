"""The changes of the market over time: traces merged with generated markets.

The generator makes a market from the seed: capacity drifts around its mean, and there are shortages of whole zones.

In a shortage every accelerator of the zone loses most of its capacity at once and gets it back later: the losses of
nodes there are correlated, as in a real zone. Low capacity increases the price. Each zone has its own random stream, so
that an added zone changes nothing in the others.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from runtime.clock import Clock
from simulator.market.markets import ACCELERATORS, Change, Market, MicroUsd


@dataclass(frozen=True, slots=True)
class Weather:
    mean_capacity: int = 16
    """Mean number of accelerators of one type in one zone without a shortage."""
    drift_every_s: float = 600.0
    shortage_every_s: float = 6 * 3600.0
    shortage_s: float = 1200.0
    """Mean duration of a shortage."""


def generate(markets: Sequence[Market], weather: Weather, seed: int) -> Iterator[Change]:
    """Endless changes in order of time."""
    zones = sorted({market.zone for market in markets})
    streams = [
        _zone(zone, sorted(market.accelerator for market in markets if market.zone == zone), weather, seed)
        for zone in zones
    ]
    return heapq.merge(*streams, key=lambda change: change.at_s)


def _zone(zone: str, accelerators: Sequence[str], weather: Weather, seed: int) -> Iterator[Change]:
    chance = random.Random(f"{seed}/{zone}")
    supplies = [_Supply(Market(zone, name), weather.mean_capacity, chance) for name in accelerators]
    at_s = 0.0
    yield from (supply.change(at_s, 1.0) for supply in supplies)
    next_drift_s = chance.expovariate(1 / weather.drift_every_s)
    next_turn_s = chance.expovariate(1 / weather.shortage_every_s)
    left = 1.0
    while True:
        at_s = min(next_drift_s, next_turn_s)
        if at_s == next_turn_s:
            short = left == 1.0
            left = chance.uniform(0.0, 0.6) if short else 1.0
            next_turn_s += chance.expovariate(1 / (weather.shortage_s if short else weather.shortage_every_s))
            yield from (supply.change(at_s, left) for supply in supplies)
        else:
            supply = chance.choice(supplies)
            supply.drift(chance)
            next_drift_s += chance.expovariate(1 / weather.drift_every_s)
            yield supply.change(at_s, left)


class _Supply:
    """Capacity of one accelerator in one zone, relative to its mean."""

    def __init__(self, market: Market, mean_capacity: int, chance: random.Random) -> None:
        self._market = market
        self._ordinary = max(1, round(mean_capacity * chance.lognormvariate(0.0, 0.25)))
        self._price = ACCELERATORS[market.accelerator].spot * chance.uniform(0.85, 1.15)
        self._level = 1.0

    def drift(self, chance: random.Random) -> None:
        self._level = min(1.6, max(0.0, self._level + 0.3 * (1.0 - self._level) + chance.gauss(0.0, 0.2)))

    def change(self, at_s: float, left: float) -> Change:
        share = self._level * left
        factor = min(1.6, max(0.7, 1.3 - 0.3 * share))
        top = ACCELERATORS[self._market.accelerator].on_demand
        price = MicroUsd(min(top, round(self._price * factor)))
        return Change(at_s, self._market, round(self._ordinary * share), price)


def merged(
    traces: Iterable[Sequence[Change]], generated: Sequence[Market], weather: Weather, seed: int
) -> Iterator[Change]:
    """All changes in order of time. A market with a trace is not generated."""
    reported = [list(trace) for trace in traces]
    traced = {change.market for trace in reported for change in trace}
    left = [market for market in generated if market not in traced]
    streams: list[Iterable[Change]] = [*reported, *([generate(left, weather, seed)] if left else [])]
    return heapq.merge(*streams, key=lambda change: change.at_s)


async def play(
    changes: Iterator[Change], opened_s: float, speed: float, clock: Clock, tell: Callable[[Change], None]
) -> None:
    """Calls `tell` for each change at its time, for past changes at once; ends after the last change."""
    for change in changes:
        wait_s = opened_s + change.at_s / speed - clock.monotonic_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        tell(change)
