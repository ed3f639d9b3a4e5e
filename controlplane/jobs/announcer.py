"""Events for people, on their way to the stream: in order, each once, and patient while the bus is away."""

import asyncio
import uuid
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from messages import subjects
from messages.events import Event
from messages.ids import Epoch
from runtime import causes
from runtime.causes import Cause
from runtime.errors import BusUnavailable
from runtime.logs import logger

AT_MOST = 10_000
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 2.0
DROPPED = "events_waiting_too_long"


@dataclass(frozen=True, slots=True)
class _Waiting:
    message_id: str
    """Stays the same however often it is sent, so that the stream keeps one."""
    event: Event
    at: datetime
    """When it happened, however late it is sent."""
    cause: Cause | None


class Streams(Protocol):
    """The part of the bus that is needed here."""

    async def publish_durable(
        self,
        subject: str,
        message: Event,
        *,
        message_id: str | None = None,
        epoch: Epoch | None = None,
        at: datetime | None = None,
    ) -> None: ...


class Announcer:
    def __init__(self, bus: Streams, epoch: Epoch) -> None:
        self._bus = bus
        self._epoch = epoch
        self.dropped: Counter[str] = Counter()
        self._waiting: deque[_Waiting] = deque()
        self._posted = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._log = logger()

    @property
    def idle(self) -> bool:
        return self._emptied.is_set()

    def announce(self, event: Event) -> None:
        if len(self._waiting) >= AT_MOST:
            self._waiting.popleft()
            self.dropped[DROPPED] += 1
        self._waiting.append(_Waiting(uuid.uuid4().hex[:20], event, datetime.now(UTC), causes.current()))
        self._emptied.clear()
        self._posted.set()

    async def run(self) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            while self._waiting:
                first = self._waiting[0]
                try:
                    await self._send(first)
                except BusUnavailable as error:
                    self._log.warning("event_not_taken", kind=first.event.kind, error=str(error), again_in_s=pause_s)
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, RETRY_MOST_S)
                    continue
                pause_s = RETRY_FIRST_S
                if self._waiting and self._waiting[0] is first:
                    self._waiting.popleft()
            self._emptied.set()
            self._posted.clear()
            await self._posted.wait()

    async def drain(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._emptied.wait()
        except TimeoutError:
            self._log.warning("events_not_sent", count=len(self._waiting))

    async def _send(self, waiting: _Waiting) -> None:
        event = waiting.event
        subject = subjects.event(event.scope, event.kind)
        with causes.caused_by(waiting.cause):
            await self._bus.publish_durable(
                subject, event, message_id=waiting.message_id, epoch=self._epoch, at=waiting.at
            )
