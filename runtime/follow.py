"""Reading a JetStream stream in order, each message once, for as long as one likes.

A consumer lives on the server and dies with it, and nats-py's own ordered consumers notice that after many seconds or
never. So the reader keeps the position: it pulls in batches from a consumer of its own, and makes another one from the
next position whenever there is a new connection, a gap, or silence where the server promised heartbeats.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.js import api

from runtime.errors import BusRefused, BusUnavailable
from runtime.link import Link
from runtime.logs import logger

_BATCH = 256
_HEARTBEAT_S = 1.0
_EXPIRES_S = 30.0
_SILENCE_S = 3.5
"""More than two missed heartbeats."""
_UNUSED_S = 30.0
_NANOSECONDS = 1_000_000_000
_STARTED_AGAIN = None


@dataclass(frozen=True, slots=True)
class Stored:
    subject: str
    payload: bytes
    headers: dict[str, str]
    sequence: int
    more: int
    """How many were waiting behind it when it was sent."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything that was stored when the reading began has been read."""


@dataclass(slots=True)
class _Position:
    stream_created: datetime | None = None
    last: int = 0


async def follow(
    link: Link,
    stream: str,
    subject: str,
    *,
    last_of_each_subject: bool = False,
    since: datetime | None = None,
    headers_only: bool = False,
) -> AsyncIterator[Stored | CaughtUp]:
    """Never ends by itself. `CaughtUp` comes once."""
    position = _Position()
    told_caught_up = False
    pause_s = 0.05
    while True:
        await link.until_connected()
        reader = _Reader(link, stream)
        try:
            waiting = await reader.start(subject, position, last_of_each_subject, since, headers_only)
            pause_s = 0.05
            if waiting == 0 and not told_caught_up:
                told_caught_up = True
                yield CaughtUp()
            while (stored := await reader.next()) is not None:
                position.last = stored.sequence
                yield stored
                if stored.more == 0 and not told_caught_up:
                    told_caught_up = True
                    yield CaughtUp()
        except BusUnavailable as error:
            logger(stream=stream).debug("follow_interrupted", error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 1.0)
        finally:
            await reader.end()


class _Reader:
    """One consumer, until it breaks."""

    def __init__(self, link: Link, stream: str) -> None:
        self._link = link
        self._stream = stream
        self._inbox = link.client.new_inbox()
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._consumer = ""
        self._subscription: Any = None
        self._forget = link.on_again(lambda: self._arrived.put_nowait(_STARTED_AGAIN))
        self._delivered = 0
        self._asked_for = 0

    async def start(
        self,
        subject: str,
        position: _Position,
        last_of_each_subject: bool,
        since: datetime | None,
        headers_only: bool,
    ) -> int:
        """The number of messages that wait to be read."""
        jetstream = self._link.jetstream
        info = await self._link.call(
            f"looking at stream {self._stream}",
            lambda: jetstream.stream_info(self._stream),
            timeout_s=5.0,
            harmless_twice=True,
        )
        if info.created != position.stream_created or info.state.last_seq < position.last:
            position.stream_created = info.created
            position.last = 0
        config = api.ConsumerConfig(
            name=self._inbox.rpartition(".")[2],
            ack_policy=api.AckPolicy.NONE,
            filter_subject=subject,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=_UNUSED_S,
            headers_only=headers_only,
        )
        if position.last > 0:
            config.deliver_policy = api.DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = position.last + 1
        elif last_of_each_subject:
            config.deliver_policy = api.DeliverPolicy.LAST_PER_SUBJECT
        elif since is not None:
            config.deliver_policy = api.DeliverPolicy.BY_START_TIME
            config.opt_start_time = since
        self._subscription = await self._link.client.subscribe(self._inbox, cb=self._on_message)
        made = await self._link.call(
            f"reading stream {self._stream}",
            lambda: jetstream.add_consumer(self._stream, config),
            timeout_s=5.0,
        )
        self._consumer = made.name
        await self._ask()
        return made.num_pending or 0

    async def next(self) -> Stored | None:
        """None when this consumer is of no more use."""
        while True:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    message = await self._arrived.get()
            except TimeoutError:
                return None
            if message is _STARTED_AGAIN:
                return None
            status = (message.headers or {}).get("Status")
            if status == "100":
                continue
            if status in ("404", "408"):
                await self._ask()
                continue
            if status is not None:
                return None
            stored, delivered = _stored(message)
            if delivered != self._delivered + 1:
                return None
            self._delivered = delivered
            self._asked_for -= 1
            if self._asked_for == 0:
                await self._ask()
            return stored

    async def end(self) -> None:
        self._forget()
        if self._subscription is not None and not self._link.client.is_closed:
            with contextlib.suppress(Exception):
                await self._subscription.unsubscribe()

    async def _on_message(self, message: Msg) -> None:
        self._arrived.put_nowait(message)

    async def _ask(self) -> None:
        self._asked_for = _BATCH
        request = {
            "batch": _BATCH,
            "expires": int(_EXPIRES_S * _NANOSECONDS),
            "idle_heartbeat": int(_HEARTBEAT_S * _NANOSECONDS),
        }
        await self._link.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
            msgspec.json.encode(request),
            reply=self._inbox,
        )


def _stored(message: Msg) -> tuple[Stored, int]:
    """The message, and how many its consumer had delivered with it."""
    fields = message.reply.split(".")
    if len(fields) < 9:
        raise BusRefused(f"a message of {message.subject} came without its position in the stream")
    sequence, delivered, _time, waiting = (int(field) for field in fields[-4:])
    return Stored(message.subject, message.data, dict(message.headers or {}), sequence, waiting), delivered
