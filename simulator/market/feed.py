"""The market as it happens: traces and a generator, merged, each change at its time.

The generator makes a market by seed: capacity that drifts around its mean, and bad hours in which a whole zone runs
short.

In a bad hour every accelerator of the zone loses most of its capacity at once, and gets it back later: the losses of
the nodes there are correlated, as they are in a real zone. Scarcity has its price. Each zone has a stream of its own,
so that another zone more changes nothing in the others.
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
    """Accelerators of one kind in one zone, in ordinary times."""
    drift_every_s: float = 600.0
    shortage_every_s: float = 6 * 3600.0
    shortage_s: float = 1200.0
    """How long a bad hour lasts, on average."""


def generate(markets: Sequence[Market], weather: Weather, seed: int) -> Iterator[Change]:
    """Without end, in the order of time."""
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
    yield from (supply.say(at_s, 1.0) for supply in supplies)
    next_drift_s = chance.expovariate(1 / weather.drift_every_s)
    next_turn_s = chance.expovariate(1 / weather.shortage_every_s)
    left = 1.0
    while True:
        at_s = min(next_drift_s, next_turn_s)
        if at_s == next_turn_s:
            short = left == 1.0
            left = chance.uniform(0.0, 0.6) if short else 1.0
            next_turn_s += chance.expovariate(1 / (weather.shortage_s if short else weather.shortage_every_s))
            yield from (supply.say(at_s, left) for supply in supplies)
        else:
            supply = chance.choice(supplies)
            supply.drift(chance)
            next_drift_s += chance.expovariate(1 / weather.drift_every_s)
            yield supply.say(at_s, left)


class _Supply:
    """One accelerator in one zone: how much of the ordinary is there."""

    def __init__(self, market: Market, mean_capacity: int, chance: random.Random) -> None:
        self._market = market
        self._ordinary = max(1, round(mean_capacity * chance.lognormvariate(0.0, 0.25)))
        self._price = ACCELERATORS[market.accelerator].spot * chance.uniform(0.85, 1.15)
        self._level = 1.0

    def drift(self, chance: random.Random) -> None:
        self._level = min(1.6, max(0.0, self._level + 0.3 * (1.0 - self._level) + chance.gauss(0.0, 0.2)))

    def say(self, at_s: float, left: float) -> Change:
        share = self._level * left
        dear = min(1.6, max(0.7, 1.3 - 0.3 * share))
        top = ACCELERATORS[self._market.accelerator].on_demand
        price = MicroUsd(min(top, round(self._price * dear)))
        return Change(at_s, self._market, round(self._ordinary * share), price)


def merged(
    traces: Iterable[Sequence[Change]], generated: Sequence[Market], weather: Weather, seed: int
) -> Iterator[Change]:
    """In the order of time. A market that a trace tells of is not generated as well."""
    told = [list(trace) for trace in traces]
    traced = {change.market for trace in told for change in trace}
    left = [market for market in generated if market not in traced]
    streams: list[Iterable[Change]] = [*told, *([generate(left, weather, seed)] if left else [])]
    return heapq.merge(*streams, key=lambda change: change.at_s)


async def play(
    changes: Iterator[Change], opened_s: float, speed: float, clock: Clock, tell: Callable[[Change], None]
) -> None:
    """Until there are no more. What has been since the opening is told at once."""
    for change in changes:
        wait_s = opened_s + change.at_s / speed - clock.monotonic_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        tell(change)
