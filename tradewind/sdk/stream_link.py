"""A survivor's connection to one joiner: made ahead of the switch, used for one shard, then to admit the joiner."""

import queue
import socket
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Protocol

from tradewind.sdk.raw import Staging, checksum
from tradewind.sdk.stream_wire import Connection, Shard

Address = tuple[str, int]

CONNECT_S = 5.0
SILENCE_S = 10.0
PREPARED_S = 600.0
ADMISSION_S = 600.0


class Source(Protocol):
    """A `TrainingState`."""

    def nbytes(self) -> int: ...

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview: ...


@dataclass(eq=False, slots=True)
class StreamJob:
    address: Address
    token: str
    generation: int
    step: int
    shard: int
    of: int
    state: Source
    header: bytes | None = None
    """With shard 0 only."""
    source: str = ""
    """The address to connect from; any if it is empty."""
    copied: threading.Event = field(default_factory=threading.Event)
    """The state may change again. Set also when the job failed."""
    sent: threading.Event = field(default_factory=threading.Event)
    """All is sent, or `error` says why not."""
    error: str = ""
    abandoned: bool = False

    def abandon(self) -> None:
        """The caller cannot wait for the copy: what is copied after this is not sent."""
        self.abandoned = True

    def failed(self, why: str) -> None:
        self.error = why
        self.copied.set()
        self.sent.set()


@dataclass(frozen=True, slots=True)
class Prepare:
    address: Address
    token: str
    nbytes: int
    of: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    job: StreamJob
    nbytes: int
    data: memoryview


class End:
    """Nothing comes after it."""


class Link:
    """One connection to one joiner and the thread that uses it: for one job, then it ends."""

    def __init__(self, address: Address, token: str, fingerprints: Mapping[int, int], source: str = "") -> None:
        self._address = address
        self._source = (source, 0) if source else None
        self._token = token
        self._fingerprints = fingerprints
        self._inbox: queue.SimpleQueue[Prepare | Send | End] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._staging: Staging | None = None
        self._taken = False
        self.ended = False
        name = f"tradewind-stream-{address[0]}:{address[1]}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def free_for(self, address: Address, token: str) -> bool:
        return not self._taken and not self.ended and (address, token) == (self._address, self._token)

    def put(self, order: Prepare | Send) -> bool:
        with self._lock:
            if not self.ended:
                self._taken = self._taken or isinstance(order, Send)
                self._inbox.put(order)
            return not self.ended

    def staging(self, nbytes: int) -> Staging:
        """What was made ready if it is large enough; the copy cannot wait for it."""
        ready = self._staging
        return ready if ready is not None and ready.nbytes >= nbytes else Staging(nbytes)

    def end(self) -> None:
        """Also out of the middle of sending."""
        with self._lock:
            self.ended = True
            self._inbox.put(End())
            if self._connection is not None:
                self._connection.cut()

    def _run(self) -> None:
        try:
            while True:
                match self._inbox.get(timeout=PREPARED_S):
                    case Prepare(nbytes=nbytes, of=of):
                        with suppress(OSError):
                            self._connected(nbytes)
                        self._staging = self.staging(-(-nbytes // of))
                    case Send() as send:
                        connection = self._sent(send)
                        if connection is not None and send.job.shard == 0:
                            self._answer(connection)
                        return
                    case End():
                        return
        except (queue.Empty, OSError, MemoryError):
            return
        finally:
            self._finish()

    def _sent(self, send: Send) -> Connection | None:
        job, header = send.job, send.job.header or b""
        shard = Shard(job.generation, job.step, job.shard, job.of, send.nbytes, len(header))
        try:
            connection = self._connected()
            connection.send_line(asdict(shard), SILENCE_S)
            connection.send(header, SILENCE_S)
            connection.send(send.data, SILENCE_S)
            connection.send_line({"checksum": checksum(send.data, zlib.crc32(header))}, SILENCE_S)
        except OSError as error:
            job.failed(f"shard {job.shard} of {job.of} did not get to {self._address[0]}:{self._address[1]}: {error}")
            return None
        finally:
            send.data.release()
            self._staging = None
        job.sent.set()
        return connection

    def _answer(self, connection: Connection) -> None:
        """Until the joiner is admitted or goes."""
        admitted: bool | None = None
        while admitted is not True:
            question = connection.receive_line(ADMISSION_S)
            step = question.get("step")
            known = self._fingerprints.get(step) if isinstance(step, int) else None
            admitted = None if known is None else known == question.get("fingerprint")
            connection.send_line({"step": step, "admitted": admitted}, SILENCE_S)

    def _connected(self, nbytes: int = 0) -> Connection:
        if self._connection is None:
            connection = Connection(socket.create_connection(self._address, CONNECT_S, self._source))
            with self._lock:
                self._connection = connection
                if self.ended:
                    connection.cut()
            connection.send_line({"token": self._token, "nbytes": nbytes}, SILENCE_S)
        return self._connection

    def _finish(self) -> None:
        with self._lock:
            self.ended = True
        if self._connection is not None:
            self._connection.close()
        with suppress(queue.Empty):
            while True:
                order = self._inbox.get_nowait()
                if isinstance(order, Send):
                    order.job.failed("the streamer was closed")
