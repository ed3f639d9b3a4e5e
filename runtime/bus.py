"""The bus for all roles: messages, requests, durable state, streams. No other package imports NATS.

Delivery: `publish` keeps the order, delivers at most once and never blocks; while the bus is away, messages wait in the
outbox. `publish_durable` stores exactly once or raises. Unreadable payloads are counted, logged once and dropped. An
exception of a handler is a defect: it ends the bus, and `run` raises it.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from nats.aio.msg import Msg

from messages import codec
from messages.clusters import Answer
from messages.codec import MessageTooLarge, Received, Rejected
from messages.envelope import Envelope, Message
from messages.ids import Epoch, Generation
from runtime import causes, kv, streams
from runtime.causes import Cause
from runtime.errors import BusClosed, BusRefused, BusUnavailable, NoAnswer, TooLarge
from runtime.follow import CaughtUp, Stored, Wanted
from runtime.follow import follow as follow_stream
from runtime.kv import Bucket, Entry, Subscription
from runtime.kv_ttl import ExpiringKey
from runtime.link import Link, NotTaken, translated
from runtime.logs import Once, logger
from runtime.outbox import Outbox, outgoing
from runtime.settings import BusSettings
from runtime.tail import Tail, read_tail

__all__ = ["Bucket", "Bus", "BusSettings", "Entry", "Handler", "Server", "Subscription"]

T = TypeVar("T")

Handler = Callable[[str, Received], None]
Server = Callable[[str, Received], Awaitable[Message]]

TOO_LARGE = "too_large"
BUSY = "busy"
SENDER_SHOWN = 100
"""Characters of a sender's name in a cause. Bounded, because anybody can write to the bus."""
SLOW_CONSUMER = "slow_consumer"
MISADDRESSED = "misaddressed"
"""Reason for dropping a message whose content belongs to another receiver than its subject."""

_PENDING_BYTES = 2 * 1024 * 1024
_SERVED_AT_ONCE = 16
_SERVED_AT_MOST = 256
_CLOSE_S = 5.0
_STREAMS_S = 30.0


class Bus:
    """A connection to the bus, made by `connect`. One keeper task owns its tasks; `run` waits for the keeper."""

    def __init__(self, settings: BusSettings, on_change: Callable[[bool], None]) -> None:
        self.settings = settings
        self.dropped: Counter[str] = Counter()
        """Messages that were dropped, by reason."""
        self._on_change = on_change
        self._link = Link(settings, self._fail)
        self._link.on_slow_consumer = lambda: self.dropped.update((SLOW_CONSUMER,))
        self._outbox = Outbox(self.dropped)
        self._posted = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._serving = asyncio.Semaphore(_SERVED_AT_ONCE)
        self._being_served = 0
        self._none_served = asyncio.Event()
        self._none_served.set()
        self._served: list[Subscription] = []
        self._log = logger(bus=settings.name)
        self._log_once = Once()
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, settings: BusSettings, on_change: Callable[[bool], None] = lambda connected: None) -> "Bus":
        """Connects, or raises `UserError` after `settings.connect_timeout_s`. `on_change` gets each later change."""
        bus = cls(settings, on_change)
        await bus._link.open()
        started = asyncio.Event()
        bus._keeper = asyncio.get_running_loop().create_task(bus._keep(started), name=f"bus/{settings.name}")
        bus._keeper.add_done_callback(bus._on_kept)
        await started.wait()
        return bus

    @property
    def connected(self) -> bool:
        return self._link.connected

    async def run(self) -> None:
        """Runs until the bus is closed, or raises why it failed. The caller's task group must own it."""
        if self._keeper is not None:
            await asyncio.wait({self._keeper})
        if self._failure is not None:
            raise self._failure

    def publish(
        self,
        subject: str,
        message: Message,
        *,
        epoch: Epoch | None = None,
        generation: Generation | None = None,
    ) -> None:
        self._check_alive()
        try:
            payload = self._payload(self._wrap(message, epoch, generation))
        except MessageTooLarge as error:
            self._drop(TOO_LARGE, subject, str(error))
            return
        self._outbox.put(outgoing(subject, message, payload, asyncio.get_running_loop().time()))
        self._emptied.clear()
        self._posted.set()

    async def publish_durable(
        self,
        subject: str,
        message: Message,
        *,
        message_id: str | None = None,
        epoch: Epoch | None = None,
        generation: Generation | None = None,
        at: datetime | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """Returns when a stream has stored the message, once even after retries. `at`: when the event happened."""
        self._check_alive()
        envelope = self._wrap(message, epoch, generation, message_id, at)
        payload = self._payload(envelope)
        await self._link.call(
            f"publishing {subject}",
            lambda: self._link.jetstream.publish(subject, payload, headers={"Nats-Msg-Id": envelope.id}, timeout=1.0),
            timeout_s=timeout_s,
            harmless_twice=True,
        )

    async def request(
        self,
        subject: str,
        message: Message,
        timeout_s: float,
        *,
        epoch: Epoch | None = None,
        generation: Generation | None = None,
    ) -> Received:
        """Returns the answer. Raises `NoAnswer`, `BusUnavailable` while the bus is away, or `TooLarge`."""
        self._check_alive()
        try:
            payload = self._payload(self._wrap(message, epoch, generation))
        except MessageTooLarge as error:
            self._drop(TOO_LARGE, subject, str(error))
            raise TooLarge(f"asking {subject}: {error}") from None
        deadline = asyncio.get_running_loop().time() + timeout_s
        await self._link.until_connected(timeout_s)
        left_s = deadline - asyncio.get_running_loop().time()
        try:
            with translated(f"asking {subject}"):
                reply = await self._link.client.request(subject, payload, timeout=max(0.001, left_s))
        except NotTaken:
            raise
        except BusUnavailable:
            raise NoAnswer(f"asking {subject}: no answer in {timeout_s} s") from None
        answer = codec.decode(reply.data)
        if isinstance(answer, Rejected):
            self._drop(answer.reason, subject, answer.detail)
            raise NoAnswer(f"asking {subject}: the answer could not be read ({answer.reason})")
        return answer

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Calls the handler for each readable message, in order."""

        async def on_message(message: Msg) -> None:
            received = codec.decode(message.data)
            if isinstance(received, Rejected):
                self._drop(received.reason, message.subject, received.detail)
                return
            try:
                with causes.caused_by(_cause_of(received)):
                    handler(message.subject, received)
            except Exception as error:
                self._fail(error)
                raise

        return await self._subscribe(subject, on_message)

    async def serve(self, subject: str, handler: Server) -> Subscription:
        """Answers requests, several at a time. Requests are dropped and counted while too many wait."""

        async def on_message(message: Msg) -> None:
            received = codec.decode(message.data)
            if isinstance(received, Rejected):
                self._drop(received.reason, message.subject, received.detail)
                self._reply(message, Answer(ok=False, why=f"{received.reason}: {received.detail}"))
            elif self._being_served >= _SERVED_AT_MOST:
                self._drop(BUSY, message.subject, f"{_SERVED_AT_MOST} requests are waiting")
            else:
                self._being_served += 1
                self._none_served.clear()
                self._own(self._serve(message, received, handler), f"serve/{message.subject}")

        served = await self._subscribe(subject, on_message)
        self._served.append(served)
        return served

    async def bucket(self, name: str, *, max_bytes: int = 64 * 1024 * 1024, timeout_s: float = 10.0) -> Bucket:
        self._check_alive()
        return await kv.open_bucket(self._link, name, max_bytes, self._own, timeout_s)

    async def expiring_key(self, bucket: str, key: str, *, timeout_s: float = 10.0) -> ExpiringKey:
        """Returns a key of a bucket whose value expires unless it is written again."""
        await self.bucket(bucket, timeout_s=timeout_s)
        return ExpiringKey(self._link, bucket, key)

    async def ensure_stream(
        self, name: str, subjects: Sequence[str], max_bytes: int, max_age_s: float, *, timeout_s: float = 10.0
    ) -> None:
        self._check_alive()
        await streams.ensure(self._link, streams.log_config(name, subjects, max_bytes, max_age_s), timeout_s)

    async def purge(self, stream: str, subject: str, *, timeout_s: float = 30.0) -> None:
        """Removes all messages of a subject from a stream."""
        self._check_alive()
        await streams.purge(self._link, stream, subject, timeout_s)

    async def tail(self, stream: str, subject: str, most: int, items_of: Callable[[Received], Iterable[T]]) -> Tail[T]:
        """Returns at most `most` of the newest items in a subject's messages."""
        self._check_alive()

        def items(stored: Stored) -> Iterable[T]:
            received = self._read(stored)
            return items_of(received) if received is not None else ()

        return await read_tail(self._link, Wanted(stream, subject), most, items)

    async def replay(
        self, stream: str, subject: str, *, after: int = 0, follow: bool = False
    ) -> AsyncGenerator[tuple[str, Received], None]:
        """Yields the messages of a stream after a sequence number, oldest first.

        With `follow`, also yields later messages without end, across restarts of the server.
        """
        self._check_alive()
        wanted = Wanted(stream, subject, after=after)
        async with contextlib.aclosing(follow_stream(self._link, wanted)) as found:
            async for each in found:
                if isinstance(each, CaughtUp) and not follow:
                    return
                if isinstance(each, Stored):
                    received = self._read(each)
                    if received is not None:
                        yield each.subject, received

    async def drain(self, timeout_s: float) -> None:
        """Stops serving, answers accepted requests and sends waiting messages, within the timeout; then closes."""
        with contextlib.suppress(TimeoutError, BusUnavailable, BusClosed):
            self._check_alive()
            async with asyncio.timeout(timeout_s):
                for served in self._served:
                    await served.unsubscribe()
                await self._none_served.wait()
                await self._emptied.wait()
                await self._link.until_connected()
                await self._link.settle()
        await self.close()

    async def close(self) -> None:
        """Closes at once. Waiting messages are lost."""
        self._ended.set()
        if self._keeper is not None:
            await asyncio.wait({self._keeper}, timeout=_CLOSE_S)
        await self._link.close()

    async def _keep(self, started: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._send(), name="bus/send")
                tasks.create_task(self._tell_changes(), name="bus/changes")
                tasks.create_task(self._link.watch(), name="bus/watch")
                tasks.create_task(self._keep_streams(), name="bus/streams")
                started.set()
                await self._ended.wait()
                raise _Ended
        except* _Ended:
            pass

    def _on_kept(self, keeper: "asyncio.Task[None]") -> None:
        self._ended.set()
        if not keeper.cancelled():
            error = keeper.exception()
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if error is not None:
                self._fail(error)

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ended.is_set():
            if not self._link.connected:
                await self._link.until_connected()
            if self._link.client.pending_data_size > _PENDING_BYTES:
                await asyncio.sleep(0.005)
                continue
            item = self._outbox.pop(loop.time())
            if item is None:
                self._emptied.set()
                self._posted.clear()
                await self._posted.wait()
                continue
            try:
                with translated(f"publishing {item.subject}"):
                    await self._link.client.publish(item.subject, item.payload)
            except TooLarge as error:  # this server accepts less than the previous one
                self._drop(TOO_LARGE, item.subject, str(error))

    async def _tell_changes(self) -> None:
        while True:
            self._on_change(await self._link.changes.get())

    async def _keep_streams(self) -> None:
        """Makes lost streams again after each reconnection: without them the server stores nothing, for any process."""
        again = asyncio.Event()
        self._link.on_again(again.set)
        while True:
            await again.wait()
            again.clear()
            try:
                await streams.make_lost_streams(self._link, _STREAMS_S)
            except BusUnavailable as error:
                self._log.warning("streams_not_looked_at", error=str(error))
                again.set()
            except BusRefused as error:
                self._log.error("streams_not_made_again", error=str(error))

    async def _subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> Subscription:
        async def unless_ended(message: Msg) -> None:
            if not self._ended.is_set():
                await on_message(message)

        self._check_alive()
        with translated(f"subscribing to {subject}"):
            made = await self._link.client.subscribe(subject, cb=unless_ended)
        if self._link.connected:
            with contextlib.suppress(BusUnavailable):
                await self._link.settle()

        async def end() -> None:
            with contextlib.suppress(BusClosed), translated(f"unsubscribing from {subject}"):
                await made.unsubscribe()

        return Subscription(end)

    async def _serve(self, message: Msg, received: Received, handler: Server) -> None:
        try:
            with causes.caused_by(_cause_of(received)):
                async with self._serving:
                    answer = await handler(message.subject, received)
                self._reply(message, answer)
        finally:
            self._being_served -= 1
            if self._being_served == 0:
                self._none_served.set()

    def _reply(self, request: Msg, answer: Message) -> None:
        if request.reply:
            self.publish(request.reply, answer)

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        if self._tasks is None or self._ended.is_set():
            work.close()
            raise BusClosed("the bus was closed")
        return self._tasks.create_task(work, name=name)

    def _wrap(
        self,
        message: Message,
        epoch: Epoch | None,
        generation: Generation | None,
        message_id: str | None = None,
        at: datetime | None = None,
    ) -> Envelope:
        cause = causes.current()
        return codec.wrap(
            message,
            sender=self.settings.name,
            epoch=epoch,
            generation=generation,
            caused_by=cause.message_id if cause is not None else None,
            cause=cause.text if cause is not None else None,
            message_id=message_id,
            at=at,
        )

    def _payload(self, envelope: Envelope) -> bytes:
        payload = codec.encode(envelope)
        limit = self._link.client.max_payload
        if len(payload) > limit:
            raise MessageTooLarge(f"a {envelope.kind} message of {len(payload)} bytes, the server takes {limit}")
        return payload

    def _read(self, stored: Stored) -> Received | None:
        received = codec.decode(stored.payload)
        if isinstance(received, Rejected):
            self._drop(received.reason, stored.subject, received.detail)
            return None
        return received

    def _drop(self, reason: str, subject: str, detail: str) -> None:
        self.dropped[str(reason)] += 1
        if self._log_once(str(reason)):
            self._log.warning("message_dropped", reason=str(reason), subject=subject, detail=detail)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._log.error("bus_failed", error=str(error) or type(error).__name__)
        self._ended.set()

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise BusClosed("the bus has failed") from self._failure
        if self._ended.is_set():
            raise BusClosed("the bus was closed")


def _cause_of(received: Received) -> Cause:
    envelope = received.envelope
    return Cause(envelope.id, f"{envelope.kind} from {envelope.sender[:SENDER_SHOWN]}")


class _Ended(Exception):
    """Ends the keeper's task group."""
