"""A joiner's side of the stream: takes shards from all survivors and puts the state together.

One attempt is one (generation, step). It completes when every shard of it came undamaged; it fails for good when a
sender is lost in the middle, and then only a newer attempt helps. Connections that do not know the generation are
closed and change nothing; those that do not know the token never come here (`listener.py`).
"""

import enum
import threading
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tradewind.sdk.training_state.layout import shard_bounds
from tradewind.sdk.training_state.tensor_bytes import checksum, fresh, written_ahead
from tradewind.sdk.transfer.listener import Listener
from tradewind.sdk.transfer.wire import Broken, Connection, Shard, count_of

PREPARED_S = 600.0
"""A survivor connects ahead of the switch, which may take a while to come."""
EARLY_S = 5.0
"""Survivors may be in the new world a moment before the joiner knows that it is in it."""
MOST_CONNECTIONS = 1024
MOST_HEADER_BYTES = 1 << 30


class Admission(enum.Enum):
    NOT_ASKED = enum.auto()
    AWAITED = enum.auto()
    ADMITTED = enum.auto()
    REFUSED = enum.auto()
    UNKNOWN = enum.auto()
    """The survivor does not know that step: ask again, after the next one if need be."""
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
    """The one that brought shard 0 and answers for the survivors."""
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
        """When every shard of this generation has to have begun; None while survivors may not have switched yet."""
        self._memory_ahead: memoryview | None = None
        """For the state that was announced."""
        self._makes_memory = False
        self._connections: dict[Connection, int | None] = {}
        """Each with the generation that it brings something for, once it said so."""
        self._closed = False

    def listen(self, generation: int, address: str, peers: Iterable[str], world_size: int) -> tuple[int, str]:
        """The port and the token that those who send the state into this world need."""
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
        """This trainer has the state, or ends."""
        with self._changed:
            before, self._listener = self._listener, None
        if before is not None:
            before.close()

    def restart(self, generation: int) -> None:
        """From now on only this generation counts: what came, or still comes, for another is dropped."""
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
        """All survivors are sending by now: a shard that has not begun after a while was lost, and nobody says so."""
        with self._changed:
            if self._begun_by_s is None:
                self._begun_by_s = time.monotonic() + self._silence_s

    @property
    def failed(self) -> str:
        """Why the present attempt will never complete, or nothing."""
        with self._changed:
            attempt = self._attempt
            if attempt is not None and attempt.failed:
                return attempt.failed
            overdue = self._begun_by_s is not None and time.monotonic() >= self._begun_by_s
            if not overdue or (attempt is not None and attempt.all_begun):
                return ""
            begun = f"{len(attempt.begun)} of {attempt.of}" if attempt is not None else "no"
            return f"{begun} survivors began to send within {self._silence_s:g} s"

    def poll(self) -> Snapshot | None:
        """The complete state, given out once."""
        with self._changed:
            return self._taken()

    def wait(self, timeout_s: float) -> Snapshot | None:
        """Nothing if the time is over or the present attempt failed."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while (snapshot := self._taken()) is None:
                hopeless = self._closed or (self._attempt is not None and self._attempt.failed)
                if hopeless or not self._changed.wait(deadline_s - time.monotonic()):
                    return self._taken()
            return snapshot

    def ask_admission(self, step: int, fingerprint: int) -> None:
        """Of the state after `step` sums; the answer comes to `admission`."""
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
        """An answer needs nothing but a message there and back: one that takes so long was lost."""
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
                    self._memory_ahead = None  # those who announced the state are gone

    def _make_memory(self, nbytes: int) -> None:
        """Ahead of the switch: when the state comes, it takes no core for that from those who train."""
        with self._changed:
            there = self._memory_ahead is not None and self._memory_ahead.nbytes == nbytes
            if there or self._makes_memory or self._attempt is not None or not 0 < nbytes <= self._largest_bytes:
                return
            self._memory_ahead = None
            self._makes_memory = True
        made: memoryview | None = None
        try:
            with suppress(OSError, MemoryError):  # if the state does come, it fails with that
                made = written_ahead(nbytes)
        finally:
            with self._changed:
                self._makes_memory = False
                self._memory_ahead = None if self._closed or self._attempt is not None else made
                self._changed.notify_all()

    def _memory(self, nbytes: int) -> memoryview:
        """Under the lock."""
        made, self._memory_ahead = self._memory_ahead, None
        return made if made is not None and made.nbytes == nbytes else fresh(nbytes)

    def _joined(self, connection: Connection, shard: Shard) -> _Attempt | None:
        """The attempt that the shard belongs to; none if it came late, twice, or from elsewhere."""
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
            told = connection.receive_line(self._silence_s).get("checksum")
            if told is None:
                raise Broken("its sender speaks another version of the protocol")
            if told != checksum(data, zlib.crc32(header)):
                raise Broken("it arrived damaged")
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
        """An answer for a step that is not being asked about came late and says nothing."""
        with self._changed:
            if attempt.admission is Admission.AWAITED and attempt.asked_step == step:
                attempt.admission = answer
                self._changed.notify_all()
