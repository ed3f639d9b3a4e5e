"""Retries of reads that got no answer or were throttled. Reads change nothing, so retries are safe."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from controlplane.clouds.gke.failures import UNANSWERED, CallFailed, Code
from runtime.backoff import pauses

T = TypeVar("T")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


async def retry_read(read: Callable[[], Awaitable[T]], for_s: float) -> T:
    """Retry a read for some seconds, then raise its last `CallFailed`. Raises permanent errors at once."""
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
                # If both timeouts expire at once, for example after a pause of the process, aiohttp reports its own.
                if limit.expired():
                    break
                await asyncio.sleep(pause_s)
    except TimeoutError:
        pass
    raise last
