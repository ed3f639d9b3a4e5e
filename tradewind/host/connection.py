"""The host's end of the socket to its agent. It never blocks."""

import contextlib
import socket
from typing import Final

from tradewind.protocol.host import COMMAND_LIMIT_BYTES, HostMessage, encode_message

_CHUNK_BYTES: Final = 256 * 1024


class AgentConnection:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self.closed = False

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the agent has not yet received."""
        return len(self._outgoing)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: HostMessage) -> None:
        if not self.closed:
            self._outgoing += encode_message(message)

    def flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            pass  # the agent is slow: the selector reports when there is space
        except OSError:
            self._lose()

    def receive(self) -> list[bytes]:
        """Returns the complete lines. A line above the limit is cut to the limit, which the decoder refuses."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._lose()
            return []
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            lines.append(bytes(self._incoming + piece)[:COMMAND_LIMIT_BYTES])
            self._incoming.clear()
        self._incoming += rest[: COMMAND_LIMIT_BYTES - len(self._incoming)]
        return [line for line in lines if line.strip()]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _lose(self) -> None:
        self.closed = True
        self._outgoing.clear()
