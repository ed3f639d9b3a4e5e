"""Commands that run in the foreground: until their work is done, or a person interrupts it."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from runtime.logs import LEVEL_VARIABLE, configure
from runtime.process import Stop, run

SIGNAL_CODES = 128


def run_command(work: Callable[[], Coroutine[Any, Any, int]], log_level: str = "warning") -> NoReturn:
    """Exits with the work's result; on ctrl-C the work is cancelled at once."""

    async def main(stop: Stop) -> int:
        return await unless_stopped(work(), stop)

    quiet_logs(log_level)
    sys.exit(run(main))


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
