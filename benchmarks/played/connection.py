"""A connection to a NATS server with as little work per message as Python allows.

A client library costs several tasks and about 20 µs per message and connection. Ten thousand played workers share two
cores with the master that is measured.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

OnMessage = Callable[[bytes, bytes], None]
"""Called with the subject and the payload of each message."""

_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"lang":"played","version":"1","name":"%b"}\r\n'
_CONNECT_S: Final = 60.0


@dataclass(slots=True)
class Traffic:
    """Traffic of all connections of a process."""

    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes of payloads only."""
    lost: int = 0
    """Connections that the server closed."""
    errors: list[str] = field(default_factory=list)
    """Errors from the server."""


class Connection(asyncio.Protocol):
    """A connection, created by `connect`, that answers pings and counts bytes."""

    def __init__(self, name: str, on_message: OnMessage, traffic: Traffic) -> None:
        self._name = name
        self._traffic = traffic
        self._on_message = on_message
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._sids = 0
        self._settled: list[asyncio.Future[None]] = []

    async def settle(self) -> None:
        """Returns when the server has received everything sent before."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settled.append(answered)
        self._write(b"PING\r\n")
        async with asyncio.timeout(_CONNECT_S):
            await answered

    def subscribe(self, *subjects: str) -> None:
        lines = []
        for subject in subjects:
            self._sids += 1
            lines.append(f"SUB {subject} {self._sids}\r\n")
        self._write("".join(lines).encode())

    def publish(self, subject: bytes, payload: bytes) -> None:
        self._traffic.bytes_out += len(payload)
        self._write(b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload))

    def abort(self) -> None:
        """Closes at once, like the end of the process."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write(_CONNECT % self._name.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in self._settled:
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the server closed the connection"))
        if self._transport is not None:
            self._transport = None
            self._traffic.lost += 1

    def data_received(self, data: bytes) -> None:
        self._traffic.bytes_in += len(data)
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        while at < size:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            if data.startswith(b"MSG", at):
                words = data[at + 4 : end].split()
                last = end + 2 + int(words[-1])
                if last + 2 > size:
                    break
                self._on_message(words[0], data[end + 2 : last])
                at = last + 2
            else:
                self._hear_control(data[at:end])
                at = end + 2
        self._rest = data[at:] if at < size else b""

    def _hear_control(self, line: bytes) -> None:
        if line == b"PING":
            self._write(b"PONG\r\n")
        elif line == b"PONG":
            waiting = self._settled.pop(0)
            if not waiting.done():
                waiting.set_result(None)
        elif line.startswith(b"-ERR"):
            self._traffic.errors.append(line.decode(errors="replace"))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def connect(port: int, name: str, on_message: OnMessage, traffic: Traffic) -> Connection:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECT_S):
        _, made = await loop.create_connection(lambda: Connection(name, on_message, traffic), "127.0.0.1", port)
    return made
