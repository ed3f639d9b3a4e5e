"""The connection to the NATS server: made once, kept for ever, its errors in our words.

nats-py reconnects by itself; this adds what it does not do: a first connection that fails with a sentence, a pause
between tries that grows and is not the same for everybody, bounded waits for the connection, a connection that is given
up although nobody reads its last bytes, and a word to whoever must start again on a new connection, because a server
that was restarted has forgotten its consumers.
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

from runtime.backoff import pause_after, pauses
from runtime.errors import BusAway, BusClosed, BusRefused, BusUnavailable, Conflict, NoAnswer, TooLarge, UserError
from runtime.logs import Once, logger
from runtime.settings import BusSettings
from runtime.transport import Transport
from runtime.waiting import cancellation_kept

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
    """Surely not done, so that it can be tried again."""


class Link:
    def __init__(self, settings: BusSettings, on_fatal: Callable[[BaseException], None]) -> None:
        self.settings = settings
        self.client = Client()
        self.client._transport = Transport()
        self.jetstream: JetStreamContext = self.client.jetstream(timeout=_API_TIMEOUT_S)
        self.changes: asyncio.Queue[bool] = asyncio.Queue(_CHANGES_AT_MOST)
        """Of being connected, in order. They are taken at once: a full queue is a bug."""
        self.streams: dict[str, api.StreamConfig] = {}
        """Those that were made here, to be made again if the server has lost them."""
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
            with cancellation_kept():
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
            # Closing says goodbye to the server, which may just have gone.
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(_CLOSE_S):
                    await self.client.close()

    async def watch(self) -> None:
        """Sees what nats-py does not tell: that it gave up a connection but cannot close it, or no longer tries."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_S)
            if self.client.is_reconnecting and self.connected:
                self._tried_at_s = loop.time()
                _abort(self.client)
                await self._on_disconnected()
            if not self.connected and loop.time() - self._tried_at_s > _TRY_AT_LEAST_EVERY_S:
                raise BusUnavailable(f"the connection to {self.settings.url} was lost and is tried no longer")

    def on_again(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Called on every new connection after the first; returns what ends that."""
        self._again.append(callback)
        return lambda: self._again.remove(callback)

    async def until_connected(self, timeout_s: float | None = None) -> None:
        if self._closing:
            raise BusClosed("the connection to the bus was closed")
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise NotTaken(f"the bus at {self.settings.url} was away for {timeout_s:.1f} s") from None

    async def settle(self) -> None:
        """Returns when the server has what was sent before."""
        with translated("flushing"):
            await self.client.flush(timeout=5)
            # The first ping overtakes what nats-py still holds back; once it is answered nothing is held back.
            await self.client.flush(timeout=5)

    async def call(
        self, doing: str, make: Callable[[], Awaitable[T]], *, timeout_s: float, harmless_twice: bool = False
    ) -> T:
        """Waits for the connection, then does it; what was surely not done, or is harmless twice, is tried again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        for pause_s in pauses(_CALL_FIRST_S, _CALL_MOST_S):
            left_s = deadline - loop.time()
            try:
                await self.until_connected(max(0.0, left_s))
                with translated(doing):
                    async with asyncio.timeout_at(deadline):
                        return await make()
            except BusUnavailable as error:
                again = (harmless_twice or isinstance(error, NotTaken)) and not isinstance(error, TooLarge)
                if not again or loop.time() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("pauses have no end")

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
            return  # `open` raises what keeps it from connecting
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
def translated(doing: str) -> Iterator[None]:
    """Errors of nats-py, in our words; and whoever is cancelled in it is."""
    try:
        with cancellation_kept():
            yield
    except nats.js.errors.NoStreamResponseError:
        raise NotTaken(f"{doing}: no stream takes it (is the NATS server running with JetStream?)") from None
    except nats.js.errors.ServiceUnavailableError as error:
        said = error.description or "JetStream does not answer (is the NATS server running with it?)"
        raise NotTaken(f"{doing}: {said}") from None
    except nats.js.errors.APIError as error:
        if error.err_code in _WRONG_LAST_SEQUENCE:
            raise Conflict(f"{doing}: {error.description}") from None
        if error.code is not None and error.code >= 500:
            raise BusUnavailable(f"{doing}: {error.description}") from None
        raise BusRefused(f"{doing}: {error.description}") from error
    except nats.errors.NoRespondersError:
        raise NoAnswer(f"{doing}: nobody is there to answer") from None
    except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError):
        raise BusClosed(f"{doing}: the connection to the bus was closed") from None
    except TimeoutError:
        raise BusUnavailable(f"{doing}: no answer in time") from None
    except nats.errors.MaxPayloadError:
        raise TooLarge(f"{doing}: it has more bytes than the server accepts") from None
    except nats.errors.OutboundBufferLimitError:
        raise NotTaken(f"{doing}: too much is waiting to be sent") from None


def _abort(client: Client) -> None:
    """Closing waits until the last bytes are sent: on a dead connection a quarter of an hour. This does not wait."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()


def _inbox_prefix(name: str) -> str:
    """Of this client alone; begins with its name, so that a server's permissions can speak of it."""
    words = [re.sub(r"[^A-Za-z0-9_-]", "-", word) for word in name.split("/") if word]
    return ".".join(("_INBOX", *words, uuid.uuid4().hex[:12]))


def _check_address(url: str) -> None:
    """nats-py takes anything for a host name, and would look for it for ever."""
    for part in url.split(","):
        if not _ADDRESS.match(part.strip()):
            raise _no_address(url, f"{part.strip()!r} is none")


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
    said = str(last) if isinstance(last, nats.errors.Error) else ""
    if said:
        return UserError(
            f"The NATS server at {_shown(settings.url)} did not accept the connection: {said}",
            "check the user, password or credentials file in TRADEWIND_NATS_URL and TRADEWIND_NATS_CREDENTIALS",
        )
    return BusAway(_shown(settings.url), _reason(last))


def _reason(last: Exception | None) -> str:
    if isinstance(last, OSError) and last.errno is not None:
        return os.strerror(last.errno).lower() if last.errno > 0 else str(last.strerror).lower()
    return "no answer"


def _shown(url: str) -> str:
    """Without a password."""
    return re.sub(r"//[^@/,]*@", "//…@", url)
