"""Publishes events for people to the stream, in order and once; they wait while the bus is away."""

import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from messages import subjects
from messages.codec import MessageTooLarge
from messages.events import Event
from messages.ids import Epoch
from runtime import causes
from runtime.causes import Cause
from runtime.durable_outbox import DurableOutbox
from runtime.errors import BusRefused
from runtime.logs import Once, logger

AT_MOST = 10_000
DROPPED = "events_waiting_too_long"
REFUSED = "events_refused"


@dataclass(frozen=True, slots=True)
class _Waiting:
    message_id: str
    """The same for each retry, so that the stream stores the event once."""
    event: Event
    at: datetime
    """When it happened, not when it is sent."""
    cause: Cause | None


class Streams(Protocol):
    """The part of the bus that the announcer needs."""

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
        self._outbox: DurableOutbox[_Waiting] = DurableOutbox("events", self._send)
        self._log = logger()
        self._log_once = Once()

    @property
    def idle(self) -> bool:
        return self._outbox.idle

    def announce(self, event: Event) -> None:
        if len(self._outbox) >= AT_MOST:
            self._outbox.drop_oldest()
            self.dropped[DROPPED] += 1
        self._outbox.put(_Waiting(uuid.uuid4().hex[:20], event, datetime.now(UTC), causes.current()))

    async def run(self) -> None:
        """Until cancelled."""
        await self._outbox.run()

    async def drain(self, timeout_s: float) -> None:
        if not await self._outbox.flush(timeout_s):
            self._log.warning("events_not_sent", count=len(self._outbox))

    async def _send(self, waiting: _Waiting) -> None:
        event = waiting.event
        subject = subjects.event(event.scope, event.kind)
        try:
            with causes.caused_by(waiting.cause):
                await self._bus.publish_durable(
                    subject, event, message_id=waiting.message_id, epoch=self._epoch, at=waiting.at
                )
        except (BusRefused, MessageTooLarge) as error:
            self._drop(event, str(error))

    def _drop(self, event: Event, why: str) -> None:
        """Drops an event that the bus refuses, because a retry would be refused too."""
        self.dropped[REFUSED] += 1
        if self._log_once((event.scope, event.kind)):
            self._log.warning("event_dropped", scope=event.scope, kind=event.kind, why=why)
