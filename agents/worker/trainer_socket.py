"""The socket to which trainers that use the SDK attach: their lines in, our words out.

Lines are taken where the socket is read, without a task between: how fast a world heals depends on it. A trainer that
does not read what it is told, or sends a line without end, is cut off; one that attaches again takes its older place.
"""

import asyncio
import contextlib
import os
import socket
import struct
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

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
SOCKET_PATH_BYTES = 107
CONNECTIONS_MOST = 256
BACKLOG_MOST_BYTES = 4 * 1024 * 1024
"""Of what a trainer was told and has not read."""
_ENDED_OR_STOPPED = frozenset("TtZXx")
ATTACH_S = 10.0
"""For the first message of a connection."""


Hear = Callable[[Birth, wire.TrainerMessage | None], None]
"""None: the connection broke."""


@contextlib.asynccontextmanager
async def socket_for(folder: Path, *, elsewhere: bool) -> AsyncIterator[Path]:
    """In the worker's folder. If that makes a path too long, in a temporary one, unless the other container (elsewhere)
    could not see it."""
    path = folder / SOCKET
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
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
                _let_others_in(path)
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
        """What it last said, also when the connection is gone already."""
        return self._newest.get(birth)

    def running(self) -> frozenset[Birth]:
        """Attached trainers whose processes are neither ended nor stopped, as far as they can be seen from here."""
        return frozenset(birth for birth, connection in self._attached.items() if connection.peer_runs())

    def forget(self, birth: Birth) -> None:
        """It has exited."""
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
        """Of the time of its steps; what makes no sense is counted, and the steps still are what they are."""
        try:
            return measured_of(said)
        except Undecodable as error:
            self.drop("measurement_dropped", str(error))
            return None

    def certificate(self, said: wire.Status) -> SampleCertificate | None:
        """The proof of a finished trainer; one that makes no sense is counted, and the rest of its status counts."""
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
    """The pid of the process at the other end; None if it lives where this process cannot see it."""
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


def _let_others_in(path: Path) -> None:
    """The trainers' image may have another user than ours; the pod is what keeps others out."""
    path.parent.chmod(0o711)
    path.chmod(0o666)


class _Connection(asyncio.Protocol):
    """Owned by the server: it ends with it, or by itself."""

    def __init__(self, trainers: Trainers) -> None:
        self._trainers = trainers
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._birth: Birth | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one only by its methods
        if not self._trainers.opened(self):
            self.cut()
            return
        self._patience = asyncio.get_running_loop().call_later(ATTACH_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        for line in lines:
            if not self._open:
                return
            self._take(line)
        if len(rest) > wire.MESSAGE_LIMIT_BYTES:
            self._trainers.drop("trainer_cut_off", "it sent a line without end")
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient_no_more()
        self._trainers.closed(self, self._birth)

    def tell(self, line: bytes) -> None:
        if self._transport is None or not self._open:
            return
        self._transport.write(line)
        if self._transport.get_write_buffer_size() > BACKLOG_MOST_BYTES:
            self._trainers.drop("trainer_cut_off", "it does not read what it is told")
            self.cut()

    def peer_runs(self) -> bool:
        """Whether the kernel sees a process there that is neither ended nor stopped.

        A trainer that has to wait for a core cannot say that it lives; the kernel can say it for it."""
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
                self._be_patient_no_more()
                self._birth = birth_of(message)
                self._trainers.attached(self, message)
            case wire.Status() | wire.Progress() | wire.Checkpoint() if self._birth is not None:
                self._trainers.said(self._birth, message)
            case _:
                self._trainers.drop("trainer_message_dropped", "it is attached already, or not yet")

    def _give_up(self) -> None:
        self._trainers.drop("trainer_cut_off", f"it did not attach within {ATTACH_S:g} s")
        self.cut()

    def _be_patient_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
