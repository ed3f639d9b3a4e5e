"""The host's end of the socket to its agent: lines in, messages out, neither of which ever blocks."""

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
        """What the agent has not taken yet."""
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
            pass  # the agent is slow: the selector tells when there is room
        except OSError:
            self._lose()

    def receive(self) -> list[bytes]:
        """The lines that are whole by now. One that is too long comes cut to the limit, and is refused there."""
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
