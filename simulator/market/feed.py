"""The market as it happens: traces and the generator, merged, each change at its time."""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

from runtime.clock import Clock
from simulator.market.changes import Change, Market
from simulator.market.generator import Weather, generate


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
