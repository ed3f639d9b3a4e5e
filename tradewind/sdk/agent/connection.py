"""The connection to the worker-agent: one socket, and the thread that reads it."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Final

from tradewind.protocol import trainer as protocol
from tradewind.protocol import variables
from tradewind.protocol.lines import Unreadable
from tradewind.protocol.trainer import Attach, Order

_SEND_TIMEOUT_S: Final = 5.0
_CHUNK_BYTES: Final = 256 * 1024


class AgentConnection:
    """Sending never raises: an agent that is gone ends its trainers by other means."""

    def __init__(self, path: str, attach: Attach) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._socket.settimeout(_SEND_TIMEOUT_S)
        self._sending = threading.Lock()
        self.send(protocol.encode_message(attach))

    def send(self, line: bytes) -> None:
        # A signal handler may have interrupted its own thread in here: it gives up rather than wait for itself.
        if not self._sending.acquire(timeout=_SEND_TIMEOUT_S):
            return
        try:
            with contextlib.suppress(OSError):
                self._send_all(line)
        finally:
            self._sending.release()

    def _send_all(self, line: bytes) -> None:
        try:
            self._socket.sendall(line)
        except TimeoutError:
            self._socket.shutdown(socket.SHUT_RDWR)  # half of it may have gone, and the next would follow that

    def listen(self, obey: Callable[[Order], None]) -> None:
        threading.Thread(target=self._read, args=(obey,), name="tradewind-control", daemon=True).start()

    def _read(self, obey: Callable[[Order], None]) -> None:
        held = b""
        while True:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            *lines, held = (held + data).split(b"\n")
            if len(held) > protocol.ORDER_LIMIT_BYTES:
                return
            for line in lines:
                with contextlib.suppress(Unreadable):
                    obey(protocol.decode_order(line))


def connect(environ: Mapping[str, str] = os.environ) -> AgentConnection | None:
    """None where no worker-agent asked for this process."""
    path = environ.get(variables.TRAINER_SOCKET)
    if not path:
        return None
    attach = Attach(
        generation=int(environ[variables.GENERATION]),
        rank=int(environ.get(variables.RANK) or environ["RANK"]),  # in RANK, who joins is alone
        local_rank=int(environ.get("LOCAL_RANK", "0")),
        pid=os.getpid(),
    )
    return AgentConnection(path, attach)
