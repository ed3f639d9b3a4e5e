"""An outbox for a stream of the bus: sends items in order, and retries each until the stream has stored it.

Items wait here while the bus is away. The owner bounds the outbox and decides what is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from runtime.errors import BusUnavailable
from runtime.logs import logger
from runtime.retry import Backoff

RETRY_FIRST_S = 0.1
RETRY_MOST_S = 2.0

Item = TypeVar("Item")


class DurableOutbox(Generic[Item]):
    def __init__(self, what: str, send: Callable[[Item], Awaitable[None]]) -> None:
        """`send` must be idempotent, because its answer may be lost. Errors other than `BusUnavailable` end `run`."""
        self._what = what
        self._send = send
        self._waiting: deque[Item] = deque()
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._log = logger()

    def __len__(self) -> int:
        """Returns the number of waiting items, without the one that is being sent."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """True if all items were stored."""
        return self._emptied.is_set()

    def put(self, item: Item) -> None:
        self._waiting.append(item)
        self._emptied.clear()
        self._filled.set()

    def drop_oldest(self) -> Item | None:
        """Removes and returns the oldest waiting item."""
        return self._waiting.popleft() if self._waiting else None

    async def run(self) -> None:
        """Sends items, until cancelled."""
        while True:
            await self._filled.wait()
            while self._waiting:
                await self._send_until_stored(self._waiting.popleft())
            self._filled.clear()
            self._emptied.set()

    async def flush(self, timeout_s: float) -> bool:
        """Waits until all items are stored. Returns False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    async def _send_until_stored(self, item: Item) -> None:
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        is_first = True
        while True:
            try:
                await self._send(item)
            except BusUnavailable as error:
                if is_first:
                    self._log.warning("waits_for_bus", what=self._what, why=str(error))
                is_first = False
                await backoff.wait()
            else:
                return
