"""Waiting for whichever comes first; waiting inside of what forgets that it was cancelled."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> bool:
    """Whether one of them was set in time."""
    waits = [asyncio.create_task(event.wait(), name="first-of") for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
        # They only wait, so they end at once.
        await asyncio.wait(waits)


@contextmanager
def cancellation_kept() -> Iterator[None]:
    """Around code of others: until Python 3.12 `asyncio.wait_for` forgets a cancellation that comes with the result.

    Whoever cancelled the task would wait for its end for ever."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
