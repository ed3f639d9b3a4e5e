"""A transport for nats-py that fails on uvloop as on asyncio's own loop.

A write to a lost connection raises RuntimeError on uvloop. nats-py treats it as the end of the event loop: it stops
sending without a reconnection, and the next sender gets the error.
"""

import asyncio
import contextlib
from collections.abc import Iterable

from nats.aio.transport import TcpTransport


class Transport(TcpTransport):
    _io_writer: asyncio.StreamWriter

    def __init__(self) -> None:
        TcpTransport.__init__(self)

    def write(self, payload: bytes) -> None:
        """Writes a ping. Ignores a lost connection, which the next write or read finds."""
        with contextlib.suppress(RuntimeError):
            self._io_writer.write(payload)

    def writelines(self, payload: Iterable[bytes]) -> None:
        try:
            self._io_writer.writelines(payload)
        except RuntimeError as error:
            raise ConnectionResetError("the connection is lost") from error

    def __bool__(self) -> bool:
        """Returns True; otherwise nats-py creates its own transport."""
        return True
