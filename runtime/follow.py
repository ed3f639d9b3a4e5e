"""Reads a JetStream stream in order, each message once, without end.

A consumer exists on the server and is lost with it. nats-py's ordered consumers notice that after many seconds or
never. So this reader stores the position itself. It pulls batches from its own consumer, and makes a new one at the
next position after a new connection, a gap, or missing heartbeats of the server.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import api

from runtime import streams
from runtime.errors import BusUnavailable
from runtime.link import Link
from runtime.logs import logger
from runtime.retry import Backoff

_BATCH = 2048
_BATCH_BYTES = 8 * 1024 * 1024
_HEARTBEAT_S = 2
_EXPIRES_S = 30
_SILENCE_S = 5.0
"""More than two missed heartbeats."""
_UNUSED_S = 10.0
_API_TIMEOUT_S = 5.0
_PAUSE_FIRST_S = 0.05
_PAUSE_MOST_S = 1.0
_NANOSECONDS = 1_000_000_000

_HEARTBEAT = "100"
_PULL_IS_OVER = ("404", "408")
_CONFLICT = "409"


@dataclass(frozen=True, slots=True)
class Stored:
    subject: str
    payload: bytes
    headers: dict[str, str]
    sequence: int
    more: int
    """Messages that waited behind this one when it was sent."""


@dataclass(frozen=True, slots=True)
class StartedOver:
    """The server has lost or replaced the stream; what follows is from the new stream."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All messages that were stored at the start, or at the last `StartedOver`, have been read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    stream: str
    subject: str
    last_of_each_subject: bool = False
    headers_only: bool = False
    after: int = 0
    """Reading begins behind this sequence number; 0 for the beginning."""


async def follow(link: Link, wanted: Wanted) -> AsyncGenerator[Stored | StartedOver | CaughtUp, None]:
    """Yields the messages of a stream. Never ends by itself."""
    created: datetime | None = None
    last = wanted.after
    behind = True
    backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_MOST_S)
    while True:
        await link.until_connected()
        reader = _Reader(link, wanted)
        try:
            found = await reader.look()
            if (created is not None and found.created != created) or found.state.last_seq < last:
                last = 0
                behind = True
                yield StartedOver()
            created = found.created
            if await reader.start(last) == 0 and behind:
                behind = False
                yield CaughtUp()
            while (stored := await reader.next()) is not None:
                backoff.reset()
                last = stored.sequence
                yield stored
                if stored.more == 0 and behind:
                    behind = False
                    yield CaughtUp()
        except BusUnavailable as error:
            logger(stream=wanted.stream).debug("follow_interrupted", error=str(error))
        finally:
            await reader.end()
        await backoff.wait()


class _Reader:
    """A consumer on the server, used until it breaks."""

    def __init__(self, link: Link, wanted: Wanted) -> None:
        self._link = link
        self._wanted = wanted
        self._inbox = link.client.new_inbox()
        self._consumer = self._inbox.rpartition(".")[2]
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        """None: there is a new connection, whose server may not know the consumer."""
        self._forget = link.on_again(lambda: self._arrived.put_nowait(None))
        self._subscription: Subscription | None = None
        self._delivered = 0
        self._left_of_batch = 0

    async def look(self) -> api.StreamInfo:
        """Reads the state of the stream, and makes the stream again if the server has lost it."""
        name = self._wanted.stream
        return await self._link.call(
            f"looking at stream {name}",
            lambda: streams.look(self._link, name),
            timeout_s=_API_TIMEOUT_S,
            harmless_twice=True,
        )

    async def start(self, last: int) -> int:
        """Starts behind the last read message, or at the wanted start. Returns the number of waiting messages."""
        config = api.ConsumerConfig(
            name=self._consumer,
            ack_policy=api.AckPolicy.NONE,
            filter_subject=self._wanted.subject,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=_UNUSED_S,
            headers_only=self._wanted.headers_only or None,
        )
        if last > 0:
            config.deliver_policy = api.DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = last + 1
        elif self._wanted.last_of_each_subject:
            config.deliver_policy = api.DeliverPolicy.LAST_PER_SUBJECT
        self._subscription = await self._link.client.subscribe(self._inbox, cb=self._on_message)
        made = await self._link.call(
            f"reading stream {self._wanted.stream}", lambda: self._consume(config), timeout_s=_API_TIMEOUT_S
        )
        await self._pull()
        return made.num_pending or 0

    async def _consume(self, config: api.ConsumerConfig) -> api.ConsumerInfo:
        """Creates the consumer. Raises `BusUnavailable` if the server has lost the stream since `look`."""
        name = self._wanted.stream
        try:
            return await self._link.jetstream.add_consumer(name, config)
        except nats.js.errors.NotFoundError:
            raise BusUnavailable(f"stream {name} was just lost") from None

    async def next(self) -> Stored | None:
        """Returns the next message; None if this consumer is broken."""
        while True:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    message = await self._arrived.get()
            except TimeoutError:
                return None
            if message is None:
                return None
            headers = dict(message.headers or {})
            status = headers.get("Status")
            if status is None:
                return await self._take(message, headers)
            too_many_bytes = status == _CONFLICT and "MaxBytes" in headers.get("Description", "")
            if status in _PULL_IS_OVER or too_many_bytes:
                await self._pull()
            elif status != _HEARTBEAT:
                return None

    async def end(self) -> None:
        self._forget()
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()

    async def _take(self, message: Msg, headers: dict[str, str]) -> Stored | None:
        """Returns a message of the stream; None if an earlier one is missing, or if it is from elsewhere."""
        try:
            position = message.metadata
        except nats.errors.NotJSMessageError:
            return None
        if position.sequence.consumer != self._delivered + 1:
            return None
        self._delivered = position.sequence.consumer
        self._left_of_batch -= 1
        if self._left_of_batch == 0:
            await self._pull()
        return Stored(message.subject, message.data, headers, position.sequence.stream, position.num_pending)

    async def _on_message(self, message: Msg) -> None:
        self._arrived.put_nowait(message)

    async def _pull(self) -> None:
        self._left_of_batch = _BATCH
        request = {
            "batch": _BATCH,
            "max_bytes": _BATCH_BYTES,
            "expires": _EXPIRES_S * _NANOSECONDS,
            "idle_heartbeat": _HEARTBEAT_S * _NANOSECONDS,
        }
        await self._link.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._wanted.stream}.{self._consumer}",
            msgspec.json.encode(request),
            reply=self._inbox,
        )
