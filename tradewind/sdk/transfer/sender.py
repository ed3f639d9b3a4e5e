"""The sender of a rank that has the state: it copies its shard at the switch and sends it in the background.

One thread copies, which is fast, and starts a thread for each joining rank, which connects, sends and answers. So a
slow joining rank delays neither training nor the copy for another one. A connection is opened before the switch, used
for one shard, and then for requests for admission.
"""

import queue
import socket
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Protocol

from tradewind.sdk.groups.group import Destination
from tradewind.sdk.training_state.tensor_bytes import Staging, checksum
from tradewind.sdk.transfer.wire import Connection, Shard

CONNECT_S = 5.0
SILENCE_S = 10.0
PREPARED_S = 600.0
ADMISSION_S = 600.0
MOST_LINKS = 256


class Source(Protocol):
    """A `TrainingState`."""

    def nbytes(self) -> int: ...

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview: ...


@dataclass(eq=False, slots=True)
class StreamJob:
    to: Destination
    generation: int
    step: int
    shard: int
    of: int
    state: Source
    header: bytes | None = None
    """The header of the state, with shard 0 only."""
    copied: threading.Event = field(default_factory=threading.Event, init=False)
    """Set when the state may change again, or when the job failed."""
    sent: threading.Event = field(default_factory=threading.Event, init=False)
    """Set when all is sent, or when the job failed with `error`."""
    error: str = field(default="", init=False)
    abandoned: bool = field(default=False, init=False)

    def abandon(self) -> None:
        """Drops a copy that the caller cannot wait for."""
        self.abandoned = True

    def failed(self, why: str) -> None:
        self.error = why
        self.copied.set()
        self.sent.set()


@dataclass(frozen=True, slots=True)
class Prepare:
    to: Destination
    nbytes: int
    of: int


@dataclass(frozen=True, slots=True)
class Send:
    job: StreamJob
    nbytes: int
    data: memoryview


class End:
    """The last item of an inbox."""


class Link:
    """One connection to one joining rank and its thread, for one job."""

    def __init__(self, to: Destination, fingerprints: Mapping[int, int]) -> None:
        self._to = to
        self._fingerprints = fingerprints
        self._inbox: queue.SimpleQueue[Prepare | Send | End] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._staging: Staging | None = None
        self._taken = False
        self.ended = False
        threading.Thread(target=self._run, name=f"tradewind-stream-{to}", daemon=True).start()

    def free_for(self, to: Destination) -> bool:
        same = (to.address, to.token) == (self._to.address, self._to.token)
        return same and not self._taken and not self.ended

    def put(self, order: Prepare | Send) -> bool:
        with self._lock:
            if not self.ended:
                self._taken = self._taken or isinstance(order, Send)
                self._inbox.put(order)
            return not self.ended

    def staging(self, nbytes: int) -> Staging:
        """The prepared staging if it is large enough, otherwise a new one."""
        ready = self._staging
        return ready if ready is not None and ready.nbytes >= nbytes else Staging(nbytes)

    def end(self) -> None:
        """Ends the thread, even during sending."""
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
            job.failed(f"failed to send shard {job.shard} of {job.of} to {self._to}: {error}")
            return None
        finally:
            send.data.release()
            self._staging = None
        job.sent.set()
        return connection

    def _answer(self, connection: Connection) -> None:
        """Answers requests until the joining rank is admitted or closes the connection."""
        admitted: bool | None = None
        while admitted is not True:
            question = connection.receive_line(ADMISSION_S)
            step = question.get("step")
            known = self._fingerprints.get(step) if isinstance(step, int) else None
            admitted = None if known is None else known == question.get("fingerprint")
            connection.send_line({"step": step, "admitted": admitted}, SILENCE_S)

    def _connected(self, nbytes: int = 0) -> Connection:
        if self._connection is None:
            source = (self._to.source, 0) if self._to.source else None
            connection = Connection(socket.create_connection(self._to.address, CONNECT_S, source))
            with self._lock:
                self._connection = connection
                if self.ended:
                    connection.cut()
            connection.send_line({"token": self._to.token, "nbytes": nbytes}, SILENCE_S)
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
                    order.job.failed("the sender was closed")


class Streamer:
    def __init__(self, fingerprints: Mapping[int, int]) -> None:
        self._fingerprints = fingerprints
        self._inbox: queue.SimpleQueue[Prepare | StreamJob | End] = queue.SimpleQueue()
        self._links: list[Link] = []
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def prepare(self, to: Destination, nbytes: int, of: int) -> None:
        """Connects to a joining rank. `nbytes` is the size of the whole state, `of` the number of senders.

        Do not call it on the training thread.
        """
        self._put(Prepare(to, nbytes, of))

    def offer(self, job: StreamJob) -> None:
        self._put(job)

    def close(self) -> None:
        """Ends the threads and cuts off running transfers."""
        with self._starting:
            thread = self._thread
        if thread is not None:
            self._inbox.put(End())
            thread.join(timeout=5.0)

    def _put(self, order: Prepare | StreamJob) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tradewind-streamer", daemon=True)
                self._thread.start()
        self._inbox.put(order)

    def _run(self) -> None:
        while True:
            match self._inbox.get():
                case Prepare(to) as prepare:
                    link = self._prepared(to) or self._linked(to)
                    if link is not None:
                        link.put(prepare)
                case StreamJob() as job:
                    self._stream(job)
                case End():
                    break
        for link in self._links:
            link.end()

    def _stream(self, job: StreamJob) -> None:
        """Copies first: training waits for the copy, and starting a thread may take longer than the copy."""
        link = self._prepared(job.to)
        try:
            nbytes = job.state.nbytes()
            shard_nbytes = -(-nbytes // job.of)
            staging = link.staging(shard_nbytes) if link is not None else Staging(shard_nbytes)
            data = job.state.copy_shard(job.shard, job.of, staging)
        except (RuntimeError, ValueError, MemoryError) as error:
            job.failed(f"failed to copy shard {job.shard} of {job.of}: {error}")
            return
        if job.abandoned:
            job.failed("abandoned")
            return
        job.copied.set()
        link = link or self._linked(job.to)
        if link is None or not link.put(Send(job, nbytes, data)):
            job.failed(f"no connection is left for {job.to}")

    def _prepared(self, to: Destination) -> Link | None:
        return next((link for link in self._links if link.free_for(to)), None)

    def _linked(self, to: Destination) -> Link | None:
        self._links = [link for link in self._links if not link.ended]
        if len(self._links) >= MOST_LINKS:
            return None
        link = Link(to, self._fingerprints)
        self._links.append(link)
        return link
