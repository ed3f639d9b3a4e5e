"""Runs work until it is done or a person interrupts it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from runtime.logs import LEVEL_VARIABLE, configure
from runtime.process import Stop

SIGNAL_CODES = 128


def quiet_logs(level: str = "warning") -> None:
    """Limits the logs to a level: people read the command's own lines."""
    configure("command", environ={LEVEL_VARIABLE: level} | os.environ)


async def at_once() -> None:
    """Does nothing before the work is cancelled."""


async def unless_stopped(
    work: Coroutine[Any, Any, int], stop: Stop, gently: Callable[[], Awaitable[None]] = at_once
) -> int:
    """The work's result. On a request to stop, awaits `gently`, cancels the work and waits for its cleanup."""
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
