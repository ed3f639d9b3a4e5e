"""How a job's worlds are stored and sent: whole if they are small, else as chunks and deltas.

This decides and remembers; the shell writes and publishes. Columns and digest of a world are computed once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from messages import subjects
from messages.compact_worlds import (
    CHUNK_BYTES,
    StoredAssignment,
    StoredInvite,
    World,
    WorldReference,
    to_chunks,
    world_of,
)
from messages.ids import Epoch, Generation, JobName
from messages.records import NONE_APART, Record, RecordWorlds, encode_record
from messages.world_deltas import AssignmentDelta, delta_of
from messages.worlds import Assignment, EndStalled, Halt, Invite, JobCommand, Locate, Release

ENVELOPE_BYTES = 400
"""Most bytes that the envelope adds to a message."""
MEMBER_BYTES = 60
"""Least bytes of a member in JSON, which show that a world is long without encoding it."""
MAX_WORLDS = 4
"""Remembered worlds: the current, the prepared, and those that the next delta may start from."""

Sent = Assignment | AssignmentDelta | StoredAssignment | Invite | StoredInvite | Halt | Locate | EndStalled | Release


@dataclass(frozen=True, slots=True)
class WorldLimits:
    message_bytes: int = 4096
    """Most bytes of a message about a world to each worker."""
    record_bytes: int = 64_000
    """Most bytes of a record; a longer one has its worlds stored apart."""
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """A record as it is stored."""

    value: bytes
    worlds: RecordWorlds
    """Worlds that are stored apart."""
    chunks: dict[str, bytes]
    """Values that must be stored before the record, by key."""


@dataclass(slots=True)
class _Known:
    assignment: Assignment
    world: World | None = None
    reference: WorldReference | None = None
    """Set while the saved record names its chunks."""


@dataclass(slots=True)
class JobWorlds:
    job: JobName
    epoch: Epoch
    limits: WorldLimits = field(default_factory=WorldLimits)
    _known: dict[Generation, _Known] = field(default_factory=dict)
    _base: Assignment | None = None
    """The last world before `_newest` that was sent to all workers."""
    _newest: Assignment | None = None
    _delta: AssignmentDelta | None = None
    """The change from `_base` to `_newest`."""
    _saved: Record | None = None
    _named: RecordWorlds = NONE_APART
    """Worlds of the saved record that are stored apart."""
    _has_old_chunks: bool = False
    """Stored chunks may exist that the saved record does not name."""

    def adopt(self, record: Record, worlds: RecordWorlds) -> None:
        """Takes over what an earlier master stored and sent."""
        self._refer_to(record, worlds)
        self._named, self._has_old_chunks = worlds, True
        self._newest = record.assignment

    # Storing

    def layout(self, record: Record) -> RecordLayout:
        """Raises `NotStorable`."""
        if not self._is_long(record):
            value = encode_record(record)
            if len(value) <= self.limits.record_bytes:
                return RecordLayout(value, NONE_APART, {})
        # A record that is saved a second time was lost, perhaps with its chunks.
        again = record is self._saved
        chunks: dict[str, bytes] = {}
        assignment = self._stored(record.assignment, chunks, again)
        prepared = self._stored(record.prepared, chunks, again)
        worlds = RecordWorlds(assignment, prepared)
        return RecordLayout(encode_record(record, worlds), worlds, chunks)

    def saved(self, record: Record, worlds: RecordWorlds) -> bool:
        """Notes that the record is stored and names these worlds. True: old chunks must be removed.

        Only true for a record with the same worlds as the last, so that a record with a new world is not delayed."""
        self._refer_to(record, worlds)
        self._saved = record
        if worlds != self._named:
            self._named, self._has_old_chunks = worlds, True
            return False
        return self._has_old_chunks

    def old_chunks(self, stored: Iterable[str]) -> list[str]:
        """Keys of stored chunks that the saved record does not name.

        Chunks of a later epoch are excluded: a newer master may store their record next."""
        named = chunk_keys(self.job, self._named)
        written = {key: subjects.parse_chunk_key(key) for key in stored if key not in named}
        return [key for key, chunk in written.items() if chunk is None or chunk[0] <= self.epoch]

    def removed_old_chunks(self) -> None:
        self._has_old_chunks = False

    def _refer_to(self, record: Record, worlds: RecordWorlds) -> None:
        for assignment, reference in ((record.assignment, worlds.assignment), (record.prepared, worlds.prepared)):
            if assignment is not None:
                self._find(assignment).reference = reference

    def _stored(self, assignment: Assignment | None, chunks: dict[str, bytes], again: bool) -> WorldReference | None:
        if assignment is None:
            return None
        known = self._find(assignment)
        if known.reference is not None and not again:
            return known.reference
        parts = to_chunks(self._world(known).document, self.limits.chunk_bytes)
        epoch = known.reference.epoch if known.reference is not None else self.epoch
        reference = structs.replace(self._refer(known), epoch=epoch, chunks=len(parts))
        chunks |= dict(zip(subjects.world_chunk_keys(self.job, reference), parts, strict=True))
        return reference

    def _is_long(self, record: Record) -> bool:
        worlds = [world for world in (record.assignment, record.prepared) if world is not None]
        return sum(len(world.members) for world in worlds) * MEMBER_BYTES > self.limits.record_bytes

    # Sending

    def message_to_all(self, message: JobCommand) -> Sent:
        if isinstance(message, Invite):
            return self._invite(message)
        if not isinstance(message, Assignment):
            return message
        if self._newest is None or self._newest.generation != message.generation:
            self._base, self._newest, self._delta = self._newest, message, None
        if self._is_short(message):
            return message
        return self._delta_to(message) or self._pointer_to(message)

    def message_to_one(self, message: JobCommand) -> Sent:
        """The message for a worker that missed the message to all: it may lack the base of a delta."""
        if isinstance(message, Invite):
            return self._invite(message)
        if not isinstance(message, Assignment) or self._is_short(message):
            return message
        return self._pointer_to(message)

    def _delta_to(self, assignment: Assignment) -> AssignmentDelta | None:
        if self._delta is None and self._base is not None:
            known = self._find(assignment)
            delta = delta_of(self._world(self._find(self._base)), self._world(known), self._refer(known))
            self._delta = delta if delta is not None and self._fits(delta) else None
        return self._delta

    def _pointer_to(self, assignment: Assignment) -> StoredAssignment:
        return StoredAssignment(self.job, assignment.generation, self.reference(assignment))

    def _invite(self, invite: Invite) -> Invite | StoredInvite:
        if self._is_short(invite.world) and self._fits(invite):
            return invite
        return StoredInvite(self.job, invite.workers, self.reference(invite.world), invite.why, invite.terms)

    def _is_short(self, assignment: Assignment) -> bool:
        return len(assignment.members) * MEMBER_BYTES < self.limits.message_bytes and self._fits(assignment)

    def _fits(self, message: Sent) -> bool:
        return len(msgspec.json.encode(message)) + ENVELOPE_BYTES <= self.limits.message_bytes

    # Worlds

    def reference(self, assignment: Assignment) -> WorldReference:
        return self._refer(self._find(assignment))

    def _find(self, assignment: Assignment) -> _Known:
        known = self._known.get(assignment.generation)
        if known is None or (known.assignment is not assignment and known.assignment != assignment):
            known = self._known[assignment.generation] = _Known(assignment)
            for generation in sorted(self._known)[:-MAX_WORLDS]:
                del self._known[generation]
        return known

    def _world(self, known: _Known) -> World:
        if known.world is None:
            known.world = world_of(known.assignment)
        return known.world

    def _refer(self, known: _Known) -> WorldReference:
        if known.reference is not None:
            return known.reference
        world, assignment = self._world(known), known.assignment
        return WorldReference(
            assignment.generation, world.digest, size=len(world.document), members=len(assignment.members)
        )


def chunk_keys(job: JobName, worlds: RecordWorlds) -> set[str]:
    references = (reference for reference in (worlds.assignment, worlds.prepared) if reference is not None)
    return {key for reference in references for key in subjects.world_chunk_keys(job, reference)}
