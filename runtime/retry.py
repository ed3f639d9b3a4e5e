"""Growing pauses with jitter between attempts."""

import asyncio
import random

from runtime.backoff import pauses

JITTER = 0.2
"""Maximum relative change of a pause, up or down, so that many clients do not retry at the same time."""


class Backoff:
    """Waits longer after each failed attempt. The caller resets it after a successful one.

    `first_s` and `most_s` are the first and the longest pause without jitter; jitter may exceed them by `JITTER`.
    """

    def __init__(self, first_s: float = 0.1, most_s: float = 10.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._pauses_s = pauses(first_s, most_s)

    def next_s(self) -> float:
        """Returns the seconds of the next pause, with jitter."""
        return next(self._pauses_s) * random.uniform(1 - JITTER, 1 + JITTER)

    async def wait(self, at_least_s: float = 0.0) -> None:
        """Waits for the next pause, or for `at_least_s` if that is longer."""
        await asyncio.sleep(max(self.next_s(), at_least_s))

    def reset(self) -> None:
        """Starts again with the first pause."""
        self._pauses_s = pauses(self._first_s, self._most_s)
