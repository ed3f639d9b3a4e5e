"""Bounded waits on conditions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""For a machine on which much else is going on; nothing takes that long."""


async def until(holds: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    async def ask() -> object:
        return holds()

    await until_asked(ask, bool, what, timeout_s)


async def until_asked(
    ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool], what: str, timeout_s: float = PATIENCE_S
) -> T:
    """The first answer that is as wanted."""
    answer: T | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await ask()
                if holds(answer):
                    return answer
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s:g} s: {what}; the last answer was {answer}") from None
