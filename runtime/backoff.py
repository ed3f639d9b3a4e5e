"""Pauses between attempts: they grow from the first to the longest, and stay there."""

import asyncio
import random
from collections.abc import Iterator


def pauses(first_s: float, most_s: float, growth: float = 2.0) -> Iterator[float]:
    pause_s = min(first_s, most_s)
    while True:
        yield pause_s
        pause_s = min(pause_s * growth, most_s)


class Backoff:
    """Waits longer after each failed attempt, a little irregularly so that many clients do not return together."""

    def __init__(self, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._pauses_s = pauses(first_s, most_s)

    async def wait(self, at_least_s: float = 0.0) -> None:
        await asyncio.sleep(max(next(self._pauses_s) * random.uniform(0.8, 1.2), at_least_s))

    def reset(self) -> None:
        self._pauses_s = pauses(self._first_s, self._most_s)
