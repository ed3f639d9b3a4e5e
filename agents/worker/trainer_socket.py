"""The socket to which live trainers attach, for their messages and the agent's commands.

Lines are handled where the socket is read, without a task between, because the speed of recovery depends on it. A
trainer that does not read its commands, or sends an endless line, is disconnected. One that attaches again replaces its
older connection.
"""

import asyncio
import contextlib
import socket
import struct
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

from agents.worker.sockets import allow_all_users, is_short
from agents.worker.trainer import Birth
from agents.worker.translation import birth_of, certificate_of, measured_of
from messages.decoding import Undecodable
from messages.measured import StepsMeasured
from messages.workers import SampleCertificate
from runtime import proc
from runtime.errors import UserError
from runtime.logs import Once, logger
from tradewind.protocol import trainer as wire
from tradewind.protocol.lines import Unreadable

SOCKET = "trainers.sock"
CONNECTIONS_MOST = 256
BACKLOG_MOST_BYTES = 4 * 1024 * 1024
"""Bytes of commands that a trainer has not read before it is disconnected."""
_ENDED_OR_STOPPED = frozenset("TtZXx")
ATTACH_S = 10.0
"""Seconds until the first message of a connection."""


Hear = Callable[[Birth, wire.TrainerMessage | None], None]
"""Receives the messages of a trainer; None if the connection broke."""


@contextlib.asynccontextmanager
async def socket_for(folder: Path, *, elsewhere: bool) -> AsyncIterator[Path]:
    """Yields a path in the worker's folder, or a temporary one if that is too long. With `elsewhere`, another container
    must see the path, so a too long one raises `UserError`."""
    path = folder / SOCKET
    if is_short(path):
        yield path
    elif elsewhere:
        raise UserError(f"{path} is too long for a socket", "give a shorter folder with --run-dir")
    else:
        with tempfile.TemporaryDirectory(prefix="tradewind-") as short:
            yield Path(short) / SOCKET


class Trainers:
    def __init__(self, hear: Hear) -> None:
        self.dropped: Counter[str] = Counter()
        self._hear = hear
        self._connections: set[_Connection] = set()
        self._attached: dict[Birth, _Connection] = {}
        self._newest: dict[Birth, wire.Status] = {}
        self._log = logger()
        self._log_once = Once()

    @contextlib.asynccontextmanager
    async def serving(self, path: Path, *, to_others: bool) -> AsyncIterator[None]:
        _clear(path)
        server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(self), str(path))
        try:
            if to_others:
                allow_all_users(path)
            yield
        finally:
            server.close()
            for connection in list(self._connections):
                connection.cut()
            await server.wait_closed()
            _clear(path)

    def tell(self, birth: Birth, message: wire.Order) -> None:
        connection = self._attached.get(birth)
        if connection is not None:
            connection.tell(wire.encode_order(message))

    def newest(self, birth: Birth) -> wire.Status | None:
        """Returns the trainer's last status, even if the connection is gone."""
        return self._newest.get(birth)

    def running(self) -> frozenset[Birth]:
        """Returns attached trainers whose processes are neither ended nor stopped, if this process can see them."""
        return frozenset(birth for birth, connection in self._attached.items() if connection.peer_runs())

    def forget(self, birth: Birth) -> None:
        """Forgets a trainer that has exited."""
        self._newest.pop(birth, None)

    def opened(self, connection: "_Connection") -> bool:
        if len(self._connections) >= CONNECTIONS_MOST:
            self.drop("trainer_refused", "too many connections")
            return False
        self._connections.add(connection)
        return True

    def attached(self, connection: "_Connection", attach: wire.Attach) -> None:
        birth = birth_of(attach)
        older = self._attached.get(birth)
        self._attached[birth] = connection
        if older is not None and older is not connection:
            older.cut()
        self._hear(birth, attach)

    def said(self, birth: Birth, message: wire.Status | wire.Progress | wire.Checkpoint) -> None:
        if isinstance(message, wire.Status):
            self._newest[birth] = message
        self._hear(birth, message)

    def measured(self, said: wire.Progress) -> StepsMeasured | None:
        """Returns the measured times of steps. An invalid measurement is dropped and counted; the steps remain."""
        try:
            return measured_of(said)
        except Undecodable as error:
            self.drop("measurement_dropped", str(error))
            return None

    def certificate(self, said: wire.Status) -> SampleCertificate | None:
        """Returns the certificate of a finished trainer. An invalid one is dropped and counted; the status remains."""
        try:
            return certificate_of(said)
        except Undecodable as error:
            self.drop("certificate_dropped", str(error))
            return None

    def closed(self, connection: "_Connection", birth: Birth | None) -> None:
        self._connections.discard(connection)
        if birth is not None and self._attached.get(birth) is connection:
            del self._attached[birth]
            self._hear(birth, None)

    def drop(self, what: str, why: str) -> None:
        self.dropped[what] += 1
        if self._log_once((what, why)):
            self._log.warning(what, why=why)


def _peer_of(transport: asyncio.BaseTransport) -> int | None:
    """Returns the pid of the process at the other end; None if this process cannot see it."""
    peer = transport.get_extra_info("socket")
    if peer is None:
        return None
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid or None


def process_runs(pid: int | None) -> bool:
    found = proc.stat(pid) if pid is not None else None
    return found is not None and found.state not in _ENDED_OR_STOPPED


def _clear(path: Path) -> None:
    path.unlink(missing_ok=True)


class _Connection(asyncio.Protocol):
    """A connection of a trainer. It ends by itself or with the server."""

    def __init__(self, trainers: Trainers) -> None:
        self._trainers = trainers
        self._transport: asyncio.Transport | None = None
        self._attach_timeout: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._birth: Birth | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        if not self._trainers.opened(self):
            self.cut()
            return
        self._attach_timeout = asyncio.get_running_loop().call_later(ATTACH_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            if not self._open:
                return
            self._take(line)
        if len(rest) > wire.MESSAGE_LIMIT_BYTES:
            self._trainers.drop("trainer_cut_off", "it sent an endless line")
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_attach_timeout()
        self._trainers.closed(self, self._birth)

    def tell(self, line: bytes) -> None:
        if self._transport is None or not self._open:
            return
        self._transport.write(line)
        if self._transport.get_write_buffer_size() > BACKLOG_MOST_BYTES:
            self._trainers.drop("trainer_cut_off", "it does not read its commands")
            self.cut()

    def peer_runs(self) -> bool:
        """True if the kernel shows a process at the other end that is neither ended nor stopped.

        A trainer that waits for a core cannot send a status, but the kernel shows that it is alive."""
        return self._transport is not None and process_runs(_peer_of(self._transport))

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def _open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _take(self, line: bytes | bytearray) -> None:
        try:
            message = wire.decode_message(bytes(line))
        except Unreadable as error:
            self._trainers.drop("trainer_message_dropped", str(error))
            return
        match message:
            case wire.Attach() if self._birth is None:
                self._cancel_attach_timeout()
                self._birth = birth_of(message)
                self._trainers.attached(self, message)
            case wire.Status() | wire.Progress() | wire.Checkpoint() if self._birth is not None:
                self._trainers.said(self._birth, message)
            case _:
                self._trainers.drop("trainer_message_dropped", "it came before Attach, or was a second Attach")

    def _give_up(self) -> None:
        self._trainers.drop("trainer_cut_off", f"it did not attach within {ATTACH_S:g} s")
        self.cut()

    def _cancel_attach_timeout(self) -> None:
        if self._attach_timeout is not None:
            self._attach_timeout.cancel()
            self._attach_timeout = None
