"""The forms in which a job's worlds are stored and sent: whole if they are small, else as chunks and deltas.

Decides and remembers; the shell writes and publishes. A world gets its columns and its digest once.
"""

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
from messages.records import Record, RecordWorlds, encode_record
from messages.world_deltas import AssignmentDelta, delta_of
from messages.worlds import Assignment, EndStalled, Halt, Invite, JobCommand, Locate, Release

ENVELOPE_BYTES = 400
"""Bytes that the envelope adds to a message, at most."""
MEMBER_BYTES = 60
"""A member in JSON has more bytes than that: what has many members need not be encoded to know that it is long."""
KEPT = 4
"""Worlds that are remembered: the present, the prepared, and those that the next delta may start from."""

Sent = Assignment | AssignmentDelta | StoredAssignment | Invite | StoredInvite | Halt | Locate | EndStalled | Release


@dataclass(frozen=True, slots=True)
class WorldLimits:
    message_bytes: int = 4096
    """Bytes that a change of the world may send to each worker."""
    record_bytes: int = 64_000
    """A longer record has its worlds stored apart."""
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """A record as it is stored."""

    value: bytes
    worlds: RecordWorlds
    """Those that are stored apart."""
    chunks: dict[str, bytes]
    """What has to be stored before the record, by key."""


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
    """The last world that all workers were sent before `_newest`."""
    _newest: Assignment | None = None
    _delta: AssignmentDelta | None = None
    """From `_base` to `_newest`."""

    def adopt(self, record: Record, worlds: RecordWorlds) -> None:
        """What a former master stored and sent."""
        self.saved(record, worlds)
        self._newest = record.assignment

    # Storing

    def layout(self, record: Record, *, again: bool = False) -> RecordLayout:
        """`again`: its chunks are written though they were before. Raises `Unreadable`."""
        if not self._is_long(record):
            value = encode_record(record)
            if len(value) <= self.limits.record_bytes:
                return RecordLayout(value, RecordWorlds(), {})
        chunks: dict[str, bytes] = {}
        assignment = self._stored(record.assignment, chunks, again)
        prepared = self._stored(record.prepared, chunks, again)
        worlds = RecordWorlds(assignment, prepared)
        return RecordLayout(encode_record(record, worlds), worlds, chunks)

    def saved(self, record: Record, worlds: RecordWorlds) -> None:
        """The record is stored, and names these worlds."""
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
        """For a worker that lacks what all were sent: it may not have the world from which a delta starts."""
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
            for generation in sorted(self._known)[:-KEPT]:
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
