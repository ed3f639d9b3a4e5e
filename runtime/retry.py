"""Waiting between attempts."""

import asyncio
import random

from runtime.backoff import pauses

JITTER = 0.2
"""Share by which a pause is longer or shorter, so that many clients do not return together."""


class Backoff:
    """Waits longer after each failed attempt, until it is reset by a successful one."""

    def __init__(self, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._pauses_s = pauses(first_s, most_s)

    def next_s(self) -> float:
        """Seconds of the next pause."""
        return next(self._pauses_s) * random.uniform(1 - JITTER, 1 + JITTER)

    async def wait(self, at_least_s: float = 0.0) -> None:
        await asyncio.sleep(max(self.next_s(), at_least_s))

    def reset(self) -> None:
        self._pauses_s = pauses(self._first_s, self._most_s)
