"""The connection to the worker-agent: one socket, and the thread that reads it."""

import contextlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tradewind.protocol import trainer as protocol
from tradewind.protocol import variables
from tradewind.protocol.lines import Unreadable
from tradewind.protocol.trainer import Attach, Order
from tradewind.sdk.diagnostics import say

_SEND_TIMEOUT_S: Final = 5.0
_CHUNK_BYTES: Final = 256 * 1024
_TOO_LONG: Final = b"(the beginning of this line is cut off) "
"""Replaces the beginning of a line above the limit, so that the whole line is invalid JSON."""


class AgentConnection:
    """The trainer's socket to its agent. Sending never raises: trainers of a lost agent end by other means."""

    def __init__(self, path: str, attach: Attach) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._socket.settimeout(_SEND_TIMEOUT_S)
        self._sending = threading.Lock()
        self._has_ignored = False
        self.send(protocol.encode_message(attach))

    def send(self, line: bytes) -> None:
        # A signal handler may have interrupted its own thread here: it must not wait for itself.
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
            self._socket.shutdown(socket.SHUT_RDWR)  # the next line would follow half of this one

    def listen(self, obey: Callable[[Order], None]) -> None:
        """Starts a thread that obeys the agent's orders until the agent closes the connection.

        The thread ignores unreadable orders. If it fails to obey an order, it ends the process: without this thread the
        trainer would receive no halt and keep training beside its replacement.
        """
        threading.Thread(target=self._control, args=(obey,), name="tradewind-control", daemon=True).start()

    def _control(self, obey: Callable[[Order], None]) -> None:
        try:
            for line in self._lines():
                order = self._read(line)
                if order is not None:
                    obey(order)
        except Exception:
            _end_process()
            raise

    def _lines(self) -> Iterator[bytes]:
        held = b""
        while data := self._receive():
            *lines, held = (held + data).split(b"\n")
            yield from lines
            if len(held) > protocol.ORDER_LIMIT_BYTES:
                held = _TOO_LONG

    def _receive(self) -> bytes:
        """Returns the next bytes; none when the connection is closed."""
        while True:
            try:
                return self._socket.recv(_CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return b""

    def _read(self, line: bytes) -> Order | None:
        try:
            return protocol.decode_order(line)
        except Unreadable as error:
            if not self._has_ignored:
                say(f"ignoring an unreadable order of the agent, and later ones without a message: {error}")
            self._has_ignored = True
            return None


def _end_process() -> None:
    """Ends the process at once, even if the training thread waits."""
    traceback.print_exc()
    say("failed to obey an order of the agent, which is a bug in tradewind: this trainer ends")
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(1)


def connect(environ: Mapping[str, str] = os.environ) -> AgentConnection | None:
    """Connects to the worker-agent that started this process; None if none did."""
    path = environ.get(variables.TRAINER_SOCKET)
    if not path:
        return None
    attach = Attach(
        generation=int(environ[variables.GENERATION]),
        rank=int(environ.get(variables.RANK) or environ["RANK"]),  # RANK is 0 in a trainer that joins
        local_rank=int(environ.get("LOCAL_RANK", "0")),
        pid=os.getpid(),
    )
    return AgentConnection(path, attach)
