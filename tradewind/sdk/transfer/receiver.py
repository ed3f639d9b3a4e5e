"""The receiver of a joining rank: it takes shards from all senders and assembles the state.

An attempt is one (generation, step). It completes when all its shards have arrived undamaged. It fails when a sender is
lost in the middle; then a newer attempt is needed. The receiver closes connections of other generations. The listener
(`listener.py`) closes connections without the token.
"""

import enum
import threading
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tradewind.sdk.training_state.layout import shard_bounds
from tradewind.sdk.training_state.tensor_bytes import checksum, fresh, written_ahead
from tradewind.sdk.transfer.listener import Listener
from tradewind.sdk.transfer.wire import Broken, Connection, Shard, count_of

PREPARED_S = 600.0
"""Seconds from the connection of a sender to the switch."""
EARLY_S = 5.0
"""Seconds that senders may be in the new world before this rank is."""
DAMAGED: Final = "the data is damaged"
MOST_CONNECTIONS = 1024
MOST_HEADER_BYTES = 1 << 30


class Admission(enum.Enum):
    NOT_ASKED = enum.auto()
    AWAITED = enum.auto()
    ADMITTED = enum.auto()
    REFUSED = enum.auto()
    UNKNOWN = enum.auto()
    """The sender does not know that step: ask again, after the next step if necessary."""
    LOST = enum.auto()


@dataclass(frozen=True, slots=True)
class Snapshot:
    generation: int
    step: int
    header: bytes
    data: memoryview


@dataclass(slots=True)
class _Attempt:
    generation: int
    step: int
    of: int
    data: memoryview
    header: bytes = b""
    begun: set[int] = field(default_factory=set)
    complete: set[int] = field(default_factory=set)
    failed: str = ""
    first: Connection | None = None
    """The connection of shard 0, whose sender answers requests for admission."""
    admission: Admission = Admission.NOT_ASKED
    asked_step: int = -1
    asked_s: float = 0.0

    @property
    def all_begun(self) -> bool:
        return len(self.begun) == self.of


class Receiver:
    def __init__(self, largest_bytes: int = 1 << 40, silence_s: float = 10.0) -> None:
        self._largest_bytes = largest_bytes
        self._silence_s = silence_s
        self._listener: Listener | None = None
        self._listens_for = 0
        self._changed = threading.Condition()
        self._generation = 0
        self._attempt: _Attempt | None = None
        self._given = False
        self._begun_by_s: float | None = None
        """Monotonic deadline for all shards to begin; None while senders may not have switched yet."""
        self._memory_ahead: memoryview | None = None
        """Memory for the announced state."""
        self._makes_memory = False
        self._connections: dict[Connection, int | None] = {}
        """Generation of each connection, once the sender has sent it."""
        self._closed = False

    def listen(self, generation: int, address: str, peers: Iterable[str], world_size: int) -> tuple[int, str]:
        """Starts to listen; returns the port and the token that senders need."""
        listener = Listener(address, peers, world_size, self._serve)
        with self._changed:
            is_newest = not self._closed and generation >= self._listens_for
            late = self._listener if is_newest else listener
            if is_newest:
                self._listener, self._listens_for = listener, generation
        if late is not None:
            late.close()
        return listener.port, listener.token

    def stop_listening(self) -> None:
        """Stops listening, because this trainer has the state or ends."""
        with self._changed:
            before, self._listener = self._listener, None
        if before is not None:
            before.close()

    def restart(self, generation: int) -> None:
        """Begins a generation and drops all data of others."""
        with self._changed:
            if generation == self._generation:
                return
            self._generation = generation
            self._attempt = None
            self._given = False
            self._begun_by_s = None
            late = [each for each, brings in self._connections.items() if brings not in (None, generation)]
            self._changed.notify_all()
        for connection in late:
            connection.cut()

    def expect(self) -> None:
        """Starts the deadline for all shards to begin, because all senders have switched."""
        with self._changed:
            if self._begun_by_s is None:
                self._begun_by_s = time.monotonic() + self._silence_s

    @property
    def failed(self) -> str:
        """Why the current attempt can never complete; empty while it can."""
        with self._changed:
            attempt = self._attempt
            if attempt is not None and attempt.failed:
                return attempt.failed
            overdue = self._begun_by_s is not None and time.monotonic() >= self._begun_by_s
            if not overdue or (attempt is not None and attempt.all_begun):
                return ""
            begun, of = (len(attempt.begun), attempt.of) if attempt is not None else (0, None)
            return too_few_senders(begun, of, self._silence_s)

    def poll(self) -> Snapshot | None:
        """Returns the complete state, once."""
        with self._changed:
            return self._taken()

    def wait(self, timeout_s: float) -> Snapshot | None:
        """Waits for the complete state. None after the timeout, or if the current attempt failed."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while (snapshot := self._taken()) is None:
                hopeless = self._closed or (self._attempt is not None and self._attempt.failed)
                if hopeless or not self._changed.wait(deadline_s - time.monotonic()):
                    return self._taken()
            return snapshot

    def ask_admission(self, step: int, fingerprint: int) -> None:
        """Requests admission with the fingerprint of the state before `step`; `admission` then has the answer."""
        with self._changed:
            attempt = self._attempt
            if attempt is None or attempt.first is None:
                return
            attempt.asked_step = step
            attempt.asked_s = time.monotonic()
            attempt.admission = Admission.AWAITED
            first = attempt.first
        try:
            first.send_line({"step": step, "fingerprint": fingerprint}, self._silence_s)
        except OSError:
            self._answered(attempt, step, Admission.LOST)

    @property
    def admission(self) -> Admission:
        with self._changed:
            return self._admission()

    def admitted(self) -> bool | None:
        return {Admission.ADMITTED: True, Admission.REFUSED: False}.get(self.admission)

    def wait_admission(self, timeout_s: float) -> Admission:
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while self._attempt is not None and self._attempt.admission is Admission.AWAITED:
                if not self._changed.wait(deadline_s - time.monotonic()):
                    break
            return self._admission()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._attempt = None
            self._memory_ahead = None
            open_ones = list(self._connections)
            self._changed.notify_all()
        self.stop_listening()
        for connection in open_ones:
            connection.cut()

    def _admission(self) -> Admission:
        """The state of the request for admission: LOST if there is no answer after `silence_s`."""
        attempt = self._attempt
        if attempt is None:
            return Admission.NOT_ASKED
        if attempt.admission is Admission.AWAITED and time.monotonic() - attempt.asked_s >= self._silence_s:
            attempt.admission = Admission.LOST
        return attempt.admission

    def _taken(self) -> Snapshot | None:
        attempt = self._attempt
        if attempt is None or self._given or len(attempt.complete) < attempt.of:
            return None
        self._given = True
        data, attempt.data = attempt.data, memoryview(b"")
        return Snapshot(attempt.generation, attempt.step, attempt.header, data)

    def _serve(self, connection: Connection, introduction: dict[str, Any]) -> None:
        with self._changed:
            if self._closed or len(self._connections) >= MOST_CONNECTIONS:
                return
            self._connections[connection] = None
        try:
            self._make_memory(count_of(introduction.get("nbytes", 0)))
            shard = Shard.read(connection.receive_line(PREPARED_S))
            attempt = self._joined(connection, shard)
            if attempt is not None and self._receive(connection, attempt, shard) and shard.shard == 0:
                self._hear_answers(connection, attempt)
        except (OSError, MemoryError):
            return
        finally:
            with self._changed:
                self._connections.pop(connection, None)
                if not self._connections:
                    self._memory_ahead = None  # no sender that announced the state is left

    def _make_memory(self, nbytes: int) -> None:
        """Allocates memory before the switch: during the transfer, training needs the cores."""
        with self._changed:
            there = self._memory_ahead is not None and self._memory_ahead.nbytes == nbytes
            if there or self._makes_memory or self._attempt is not None or not 0 < nbytes <= self._largest_bytes:
                return
            self._memory_ahead = None
            self._makes_memory = True
        made: memoryview | None = None
        try:
            with suppress(OSError, MemoryError):  # the attempt fails with the same error later
                made = written_ahead(nbytes)
        finally:
            with self._changed:
                self._makes_memory = False
                self._memory_ahead = None if self._closed or self._attempt is not None else made
                self._changed.notify_all()

    def _memory(self, nbytes: int) -> memoryview:
        """Returns memory for a state. Call it under the lock."""
        made, self._memory_ahead = self._memory_ahead, None
        return made if made is not None and made.nbytes == nbytes else fresh(nbytes)

    def _joined(self, connection: Connection, shard: Shard) -> _Attempt | None:
        """Returns the attempt of the shard; None if the shard is late, a duplicate or does not fit."""
        if shard.nbytes > self._largest_bytes or shard.header_bytes > MOST_HEADER_BYTES:
            return None
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._generation >= shard.generation, EARLY_S)
            self._changed.wait_for(lambda: self._closed or not self._makes_memory, EARLY_S)
            attempt = self._attempt
            if (
                self._closed
                or shard.generation != self._generation
                or (attempt is not None and shard.step < attempt.step)
            ):
                return None
            if attempt is None or shard.step > attempt.step:
                attempt = _Attempt(shard.generation, shard.step, shard.of, self._memory(shard.nbytes))
                self._attempt = attempt
                self._given = False
                self._changed.notify_all()
            if (shard.of, shard.nbytes) != (attempt.of, attempt.data.nbytes) or shard.shard in attempt.begun:
                return None
            attempt.begun.add(shard.shard)
            self._connections[connection] = shard.generation
            return attempt

    def _receive(self, connection: Connection, attempt: _Attempt, shard: Shard) -> bool:
        first, last = shard_bounds(shard.shard, shard.of, shard.nbytes)
        header, data = bytearray(shard.header_bytes), attempt.data[first:last]
        try:
            connection.receive_into(memoryview(header), self._silence_s)
            connection.receive_into(data, self._silence_s)
            reported = connection.receive_line(self._silence_s).get("checksum")
            if reported is None:
                raise Broken("the sender uses another version of the protocol")
            if reported != checksum(data, zlib.crc32(header)):
                raise Broken(DAMAGED)
        except OSError as error:
            with self._changed:
                attempt.failed = attempt.failed or f"shard {shard.shard} of {shard.of}: {error}"
                self._changed.notify_all()
            return False
        with self._changed:
            if shard.shard == 0:
                attempt.header = bytes(header)
                attempt.first = connection
            attempt.complete.add(shard.shard)
            self._changed.notify_all()
        return True

    def _hear_answers(self, connection: Connection, attempt: _Attempt) -> None:
        meanings = {True: Admission.ADMITTED, False: Admission.REFUSED, None: Admission.UNKNOWN}
        try:
            while True:
                answer = connection.receive_line(PREPARED_S)
                step, admitted = answer.get("step"), answer.get("admitted")
                if isinstance(step, int) and (admitted is None or isinstance(admitted, bool)):
                    self._answered(attempt, step, meanings[admitted])
        except OSError:
            self._answered(attempt, attempt.asked_step, Admission.LOST)

    def _answered(self, attempt: _Attempt, step: int, answer: Admission) -> None:
        """Takes an answer; ignores a late one for another step."""
        with self._changed:
            if attempt.admission is Admission.AWAITED and attempt.asked_step == step:
                attempt.admission = answer
                self._changed.notify_all()


def too_few_senders(begun: int, of: int | None, silence_s: float) -> str:
    """The reason of an attempt that does not complete. `of` is None if no shard has begun."""
    senders = "no senders" if of is None else f"only {begun} of {of} senders"
    return f"{senders} began to send within {silence_s:g} s"
