"""Waiting for whichever comes first."""

import asyncio


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Whether one of them was set in time."""
    waits = [asyncio.create_task(event.wait(), name="first-of") for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
