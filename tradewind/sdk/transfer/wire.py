"""The protocol of a connection from a rank with the state (sender) to a joining rank (receiver).

    sender     {"token", "nbytes"}                            when connected, perhaps long before a switch; `nbytes` is
                                                              0 if it is not known
    sender     {"generation", "step", "shard", "of", "nbytes", "header_bytes"}, the header (with shard 0), the bytes,
               {"checksum"} of both
    receiver   {"step", "fingerprint"}                        to the sender of shard 0: a request for admission
    sender     {"step", "admitted": true | false | null}      null: the sender does not know that step, or not any more

Lines are JSON. `nbytes` is the size of the whole state, from which the shard's bytes follow. The checksum comes last:
the sender computes it while the network delivers the last bytes.
"""

import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

LINE_BYTES = 4096
CHUNK_BYTES = 1 << 20
ENDED: Final = "the connection ended"


class Broken(OSError):
    """The other side ended the connection, is silent, or violates the protocol."""


@dataclass(frozen=True, slots=True)
class Shard:
    generation: int
    step: int
    shard: int
    of: int
    nbytes: int
    header_bytes: int

    @staticmethod
    def read(line: dict[str, Any]) -> "Shard":
        shard = Shard(*(count_of(line.get(name)) for name in Shard.__slots__))
        if shard.shard >= shard.of:
            raise Broken(f"there is no shard {shard.shard} of {shard.of}")
        return shard


class Connection:
    """Lines and bytes over one socket, every wait bounded. One thread reads at a time, one writes."""

    def __init__(self, sock: socket.socket) -> None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._read = bytearray()

    def send_line(self, line: dict[str, object], timeout_s: float) -> None:
        self.send(json.dumps(line).encode() + b"\n", timeout_s)

    def send(self, data: bytes | memoryview, timeout_s: float) -> None:
        """Sends pieces with a timeout each: a long transfer has no timeout, a silent peer has."""
        view = memoryview(data)
        for first in range(0, view.nbytes, CHUNK_BYTES):
            piece = view[first : first + CHUNK_BYTES]
            self._socket.settimeout(timeout_s)
            self._socket.sendall(piece)

    def receive_line(self, timeout_s: float) -> dict[str, Any]:
        deadline_s = time.monotonic() + timeout_s
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > LINE_BYTES:
                raise Broken("a line is too long")
            self._socket.settimeout(max(deadline_s - time.monotonic(), 0.001))
            some = self._socket.recv(LINE_BYTES)
            if not some:
                raise Broken(ENDED)
            self._read += some
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Broken("a line is not JSON") from error
        if not isinstance(values, dict):
            raise Broken("a line is not a JSON object")
        return values

    def receive_into(self, target: memoryview, timeout_s: float) -> None:
        early = len(self._read[: target.nbytes])
        target[:early] = self._read[:early]
        del self._read[:early]
        while early < target.nbytes:
            self._socket.settimeout(timeout_s)
            count = self._socket.recv_into(target[early : early + CHUNK_BYTES])
            if count == 0:
                raise Broken(ENDED)
            early += count

    def cut(self) -> None:
        """Shuts the connection down. Another thread may call it: the owner then wakes and closes the socket.

        Closing it here would let the owner wait on another socket with the same number.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._socket.close()


def count_of(value: object) -> int:
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    raise Broken(f"not a count: {value!r:.40}")
