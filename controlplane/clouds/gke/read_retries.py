"""Reads are harmless: tried again for a while, when nobody answers or too many ask."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from controlplane.clouds.gke.failures import UNANSWERED, CallFailed, Code
from runtime.backoff import pauses

T = TypeVar("T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


async def patiently(read: Callable[[], Awaitable[T]], for_s: float) -> T:
    """Raises the last `CallFailed` when the time is over, any other at once."""
    last = CallFailed(Code.DEADLINE_EXCEEDED, f"no answer within {for_s:g} s")
    try:
        async with asyncio.timeout(for_s) as limit:
            for pause_s in pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S):
                try:
                    return await read()
                except CallFailed as failed:
                    if failed.code not in UNANSWERED and failed.code is not Code.RESOURCE_EXHAUSTED:
                        raise
                    last = failed
                # aiohttp takes our end for its own where both times are over at once, as after a pause of the process.
                if limit.expired():
                    break
                await asyncio.sleep(pause_s)
    except TimeoutError:
        pass
    raise last
