"""The connection to the NATS server, opened once and re-established by itself, with translated errors.

nats-py reconnects by itself. This module adds: a first connection that fails with a clear message, growing pauses with
jitter between tries, bounded waits for the connection, an abort of dead connections with unsent bytes, and callbacks on
new connections for readers, because a restarted server has lost its consumers.
"""

import asyncio
import contextlib
import importlib.util
import os
import random
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext, api

from runtime.backoff import pause_after
from runtime.errors import BusAway, BusClosed, BusRefused, BusUnavailable, Conflict, NoAnswer, TooLarge, UserError
from runtime.logs import Once, logger
from runtime.retry import Backoff
from runtime.settings import BusSettings
from runtime.transport import Transport
from runtime.waiting import cancellation_preserved

T = TypeVar("T")

_PING_INTERVAL_S = 1
_PINGS_UNANSWERED = 2
_RETRY_FIRST_S = 0.1
_RETRY_MOST_S = 1.0
_CALL_FIRST_S = 0.02
_CALL_MOST_S = 0.5
_TRY_AT_LEAST_EVERY_S = 60.0
_WATCH_S = 0.25
_CLOSE_S = 2.0
_API_TIMEOUT_S = 2.0
_PENDING_BYTES = 8 * 1024 * 1024
_CHANGES_AT_MOST = 100
_WRONG_LAST_SEQUENCE = (10071, 10164)
_ADDRESS = re.compile(r"^(?:(?:nats|tls|ws|wss)://)?(?:[^@/\s]*@)?(?:\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+)(?::\d+)?/?\Z")


class NotTaken(BusUnavailable):
    """The operation was surely not done, so a retry is safe."""


class Link:
    def __init__(self, settings: BusSettings, on_fatal: Callable[[BaseException], None]) -> None:
        self.settings = settings
        self.client = Client()
        self.client._transport = Transport()
        self.jetstream: JetStreamContext = self.client.jetstream(timeout=_API_TIMEOUT_S)
        self.changes: asyncio.Queue[bool] = asyncio.Queue(_CHANGES_AT_MOST)
        """Changes of `connected`, in order. The reader takes them at once, so a full queue is a bug."""
        self.streams: dict[str, api.StreamConfig] = {}
        """Streams that this process made, and makes again if the server loses them."""
        self.on_slow_consumer: Callable[[], None] = lambda: None
        self._on_fatal = on_fatal
        self._connected = asyncio.Event()
        self._was_connected = False
        self._again: list[Callable[[], None]] = []
        self._tries = 0
        self._tried_at_s = 0.0
        self._closing = False
        self._log = logger(bus=settings.name)
        self._log_once = Once()

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def open(self) -> None:
        _check_address(self.settings.url)
        _check_credentials(self.settings.credentials)
        try:
            with cancellation_preserved():
                async with asyncio.timeout(self.settings.connect_timeout_s):
                    await self.client.connect(**self._options())
        except TimeoutError:
            last = self.client.last_error
            await self.close()
            raise _unreachable(self.settings, last) from None
        except asyncio.CancelledError:
            await self.close()
            raise
        except nats.errors.Error as error:
            raise _no_address(self.settings.url, str(error)) from None
        self._was_connected = True
        self._connected.set()

    async def close(self) -> None:
        self._closing = True
        self._connected.clear()
        if not self.client.is_closed:
            # Closing sends to the server, which may just have gone.
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(_CLOSE_S):
                    await self.client.close()

    async def watch(self) -> None:
        """Detects what nats-py does not report: a lost connection that it cannot close, or the end of its retries."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_S)
            if self.client.is_reconnecting and self.connected:
                self._tried_at_s = loop.time()
                _abort(self.client)
                await self._on_disconnected()
            if not self.connected and loop.time() - self._tried_at_s > _TRY_AT_LEAST_EVERY_S:
                raise BusUnavailable(f"the connection to {self.settings.url} was lost, and nats-py no longer retries")

    def on_again(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls the callback on each new connection after the first. Returns a function that ends that."""
        self._again.append(callback)
        return lambda: self._again.remove(callback)

    async def until_connected(self, timeout_s: float | None = None) -> None:
        if self._closing:
            raise BusClosed("the connection to the bus was closed")
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise NotTaken(f"the bus at {self.settings.url} was unreachable for {timeout_s:.1f} s") from None

    async def settle(self) -> None:
        """Waits until the server has received all earlier messages."""
        with translated("flushing"):
            await self.client.flush(timeout=5)
            # The first ping overtakes bytes that nats-py still buffers; after its answer, none are buffered.
            await self.client.flush(timeout=5)

    async def call(
        self, action: str, make: Callable[[], Awaitable[T]], *, timeout_s: float, harmless_twice: bool = False
    ) -> T:
        """Waits for the connection, then calls `make`. Retries if that is safe: `NotTaken`, or `harmless_twice`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        backoff = Backoff(_CALL_FIRST_S, _CALL_MOST_S)
        while True:
            left_s = deadline - loop.time()
            try:
                await self.until_connected(max(0.0, left_s))
                with translated(action):
                    async with asyncio.timeout_at(deadline):
                        return await make()
            except BusUnavailable as error:
                again = (harmless_twice or isinstance(error, NotTaken)) and not isinstance(error, TooLarge)
                pause_s = backoff.next_s()
                if not again or loop.time() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)

    def _options(self) -> dict[str, Any]:
        return {
            "servers": [part.strip() for part in self.settings.url.split(",")],
            "name": self.settings.name,
            "inbox_prefix": _inbox_prefix(self.settings.name),
            "user_credentials": self.settings.credentials,
            "connect_timeout": 2,
            "reconnect_time_wait": _RETRY_FIRST_S,
            "max_reconnect_attempts": -1,
            "reconnect_to_server_handler": self._next_try,
            "ping_interval": _PING_INTERVAL_S,
            "max_outstanding_pings": _PINGS_UNANSWERED,
            "pending_size": _PENDING_BYTES,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnected,
            "reconnected_cb": self._on_reconnected,
            "closed_cb": self._on_closed,
        }

    def _next_try(self, servers: list[Any], _info: dict[str, Any]) -> tuple[Any, float]:
        server = servers[self._tries % len(servers)]
        most_s = pause_after(self._tries // len(servers) + 1, _RETRY_FIRST_S, _RETRY_MOST_S)
        self._tries += 1
        self._tried_at_s = asyncio.get_running_loop().time()
        return server, random.uniform(most_s / 2, most_s)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            self.on_slow_consumer()
        if not self._was_connected:
            return  # `open` raises the reason
        if self._log_once((self._connected.is_set(), type(error).__name__, str(error))):
            self._log.warning("bus_error", error=str(error) or type(error).__name__)

    async def _on_disconnected(self) -> None:
        if self._connected.is_set():
            self._connected.clear()
            self._tried_at_s = asyncio.get_running_loop().time()
            self.changes.put_nowait(False)
            self._log.warning("bus_disconnected", url=self.settings.url)

    async def _on_reconnected(self) -> None:
        if self._closing:
            return
        self._tries = 0
        self._connected.set()
        self.changes.put_nowait(True)
        self._log.info("bus_reconnected", url=self.settings.url)
        for again in tuple(self._again):
            again()

    async def _on_closed(self) -> None:
        self._connected.clear()
        if not self._closing:
            self._on_fatal(BusUnavailable(f"the server at {self.settings.url} ended the connection"))


@contextlib.contextmanager
def translated(action: str) -> Iterator[None]:
    """Translates errors of nats-py into those of `runtime.errors`, and preserves cancellation."""
    try:
        with cancellation_preserved():
            yield
    except nats.js.errors.NoStreamResponseError:
        raise NotTaken(f"{action}: no stream has this subject (is the NATS server running with JetStream?)") from None
    except nats.js.errors.ServiceUnavailableError as error:
        why = error.description or "JetStream does not answer (is the NATS server running with JetStream?)"
        raise NotTaken(f"{action}: {why}") from None
    except nats.js.errors.APIError as error:
        if error.err_code in _WRONG_LAST_SEQUENCE:
            raise Conflict(f"{action}: {error.description}") from None
        if error.code is not None and error.code >= 500:
            raise BusUnavailable(f"{action}: {error.description}") from None
        raise BusRefused(f"{action}: {error.description}") from error
    except nats.errors.NoRespondersError:
        raise NoAnswer(f"{action}: no process serves this subject") from None
    except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError):
        raise BusClosed(f"{action}: the connection to the bus was closed") from None
    except TimeoutError:
        raise BusUnavailable(f"{action}: no answer in time") from None
    except nats.errors.MaxPayloadError:
        raise TooLarge(f"{action}: the message has more bytes than the server accepts") from None
    except nats.errors.OutboundBufferLimitError:
        raise NotTaken(f"{action}: too many bytes wait to be sent") from None


def _abort(client: Client) -> None:
    """Aborts the connection. A close would wait for the last bytes, on a dead connection a quarter of an hour."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()


def _inbox_prefix(name: str) -> str:
    """Returns an inbox prefix of this client alone. It begins with its name, for permissions on the server."""
    words = [re.sub(r"[^A-Za-z0-9_-]", "-", word) for word in name.split("/") if word]
    return ".".join(("_INBOX", *words, uuid.uuid4().hex[:12]))


def _check_address(url: str) -> None:
    """Raises `UserError` for an invalid address: nats-py would resolve any text as a host name, without end."""
    for part in url.split(","):
        if not _ADDRESS.match(part.strip()):
            raise _no_address(url, f"{part.strip()!r} is not an address")


def _no_address(url: str, why: str) -> UserError:
    return UserError(
        f"{_shown(url)!r} cannot be the address of a NATS server: {why}",
        "set TRADEWIND_NATS_URL to something like nats://127.0.0.1:4222",
    )


def _check_credentials(file: str | None) -> None:
    if file is None:
        return
    if not Path(file).is_file():
        raise UserError(f"There is no credentials file {file}", "correct TRADEWIND_NATS_CREDENTIALS")
    if importlib.util.find_spec("nkeys") is None:
        raise UserError("A NATS credentials file needs the package nkeys", "pip install nkeys")


def _unreachable(settings: BusSettings, last: Exception | None) -> UserError:
    why = str(last) if isinstance(last, nats.errors.Error) else ""
    if why:
        return UserError(
            f"The NATS server at {_shown(settings.url)} did not accept the connection: {why}",
            "check the user, password or credentials file in TRADEWIND_NATS_URL and TRADEWIND_NATS_CREDENTIALS",
        )
    return BusAway(_shown(settings.url), _reason(last))


def _reason(last: Exception | None) -> str:
    if isinstance(last, OSError) and last.errno is not None:
        return os.strerror(last.errno).lower() if last.errno > 0 else str(last.strerror).lower()
    return "no answer"


def _shown(url: str) -> str:
    """Returns the URL without a password."""
    return re.sub(r"//[^@/,]*@", "//…@", url)
