"""Work in the foreground: until it is done, or a person interrupts it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from runtime.logs import LEVEL_VARIABLE, configure
from runtime.process import Stop

SIGNAL_CODES = 128


def quiet_logs(level: str = "warning") -> None:
    """People who use a command read its own lines; the logs of a role are for roles."""
    configure("command", environ={LEVEL_VARIABLE: level} | os.environ)


async def at_once() -> None:
    """There is nothing to be done before the work is cancelled."""


async def unless_stopped(
    work: Coroutine[Any, Any, int], stop: Stop, gently: Callable[[], Awaitable[None]] = at_once
) -> int:
    """The work's result; or, when a stop is asked for: first `gently`, then the work is cancelled, and cleans up."""
    working = asyncio.create_task(work, name="work")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        await gently()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait({working, stopping})
    if not working.cancelled():
        working.result()
    return SIGNAL_CODES + (stop.signal or 0)
