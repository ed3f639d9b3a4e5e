"""Waits for the first of several events, and preserves cancellation inside of code that loses it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Returns True if one of the events is set in time."""
    waits = [asyncio.create_task(event.wait(), name="first-of") for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
        # These tasks only wait, so they end at once.
        await asyncio.wait(waits)


@contextmanager
def cancellation_preserved() -> Iterator[None]:
    """Preserves cancellation: before Python 3.12, `asyncio.wait_for` loses one that comes with the result.

    The canceller would then wait for the end of the task for ever."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
