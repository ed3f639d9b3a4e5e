"""nats-py's connection, so that it breaks on uvloop as it does on asyncio's own loop.

Writing where the connection has just gone raises RuntimeError there, which nats-py takes for the end of the event loop:
it stops sending without connecting anew, and whoever sends next gets the error.
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
        """Pings: whatever is sent or read next finds that the connection has gone."""
        with contextlib.suppress(RuntimeError):
            self._io_writer.write(payload)

    def writelines(self, payload: Iterable[bytes]) -> None:
        try:
            self._io_writer.writelines(payload)
        except RuntimeError as error:
            raise ConnectionResetError("the connection has gone") from error

    def __bool__(self) -> bool:
        """Or nats-py makes one of its own."""
        return True
