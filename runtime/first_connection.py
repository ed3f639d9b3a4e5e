"""The first connection of a role: waits until a NATS server is up, and logs what it waits for.

People, supervisors and Kubernetes start roles in any order. A role that ended because the server is missing would need
a restart by somebody."""

import asyncio
from collections.abc import Callable

import msgspec

from runtime.bus import Bus
from runtime.errors import BusAway
from runtime.logs import logger
from runtime.settings import BusSettings

FIRST_TRY_S = 1.0
"""Seconds before the first log line about the wait."""
TELL_EVERY_S = 30.0


async def connect_when_up(
    settings: BusSettings,
    asked_to_end: asyncio.Event,
    on_change: Callable[[bool], None] = lambda connected: None,
    *,
    give_up_s: float | None = None,
) -> Bus | None:
    """Connects to the bus. Returns None if the process is asked to end first.

    Raises `UserError` for errors that waiting does not cure, such as an invalid address, and `BusAway` after
    `give_up_s`."""
    trying = asyncio.create_task(_try_until_up(settings, on_change, give_up_s), name="bus/first")
    asking = asyncio.create_task(asked_to_end.wait(), name="bus/asked-to-end")
    try:
        await asyncio.wait({trying, asking}, return_when=asyncio.FIRST_COMPLETED)
        return await trying if trying.done() else None
    finally:
        trying.cancel()
        asking.cancel()
        await asyncio.wait({trying, asking})


async def _try_until_up(settings: BusSettings, on_change: Callable[[bool], None], give_up_s: float | None) -> Bus:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    tell_at_s, try_s = began_s, min(FIRST_TRY_S, settings.connect_timeout_s)
    while True:
        try:
            return await Bus.connect(msgspec.structs.replace(settings, connect_timeout_s=try_s), on_change)
        except BusAway as away:
            waited_s = loop.time() - began_s
            if give_up_s is not None and waited_s >= give_up_s:
                raise
            if loop.time() >= tell_at_s:
                logger(bus=settings.name).warning("waiting_for_nats", message=_message(away), waited_s=round(waited_s))
                tell_at_s = loop.time() + TELL_EVERY_S
        try_s = settings.connect_timeout_s


def _message(away: BusAway) -> str:
    return f"Waiting for NATS at {away.url} ({away.why}); {away.hint}"
