"""Where events wait until the loop that takes them exists."""

import asyncio
from collections.abc import Callable

from agents.worker.events import BusBack, BusLost, WorkerEvent
from runtime.clock import Clock, SystemClock


class Inbox:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._waiting: list[WorkerEvent] = []
        self._take: Callable[[WorkerEvent], None] = self._waiting.append
        self._reconnected = asyncio.Event()

    def post(self, event: WorkerEvent) -> None:
        self._take(event)

    def open(self, take: Callable[[WorkerEvent], None]) -> None:
        for event in self._waiting:
            take(event)
        self._take = take

    def on_bus_change(self, connected: bool) -> None:
        now_s = self._clock.monotonic_s()
        self.post(BusBack(now_s) if connected else BusLost(now_s))
        if connected:
            self._reconnected.set()

    async def until_reconnected(self) -> None:
        await self._reconnected.wait()
        self._reconnected.clear()
