"""Pauses between attempts that grow while nothing works, a little irregular so that many do not knock together."""

import asyncio
import random


class Pauses:
    def __init__(self, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    async def wait(self, at_least_s: float = 0.0) -> None:
        pause_s = max(self._next_s * random.uniform(0.8, 1.2), at_least_s)
        self._next_s = min(self._next_s * 2, self._most_s)
        await asyncio.sleep(pause_s)

    def reset(self) -> None:
        self._next_s = self._first_s
