"""Jobs as they are kept in KV: `jobs.<job>.spec`, `jobs.<job>.world`, and the chunks of large worlds."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from controlplane.jobs.worlds import JobWorlds
from controlplane.ledger.records import encode_ledger
from controlplane.ledger.state import Ledger
from messages import subjects
from messages.compact_worlds import assignment_of
from messages.decoding import Undecodable, Unreadable, decode, encode_readable
from messages.ids import Epoch, JobName
from messages.jobs import JobSpec
from messages.records import Record, RecordReferences, RecordWorlds
from messages.worlds import Assignment
from runtime.bus import Bucket, Bus, Entry
from runtime.errors import Conflict, Permanent
from runtime.logs import logger
from runtime.stored_worlds import read_chunks


class RecordUnreadable(Permanent):
    """What is stored under a job's name is not what a master writes."""

    def __init__(self, sentence: str, revision: int = 0) -> None:
        super().__init__(sentence)
        self.revision = revision


NONE_APART = RecordWorlds()
READ_TRIES = 3
"""A world whose chunks are gone was replaced while it was read: so often the record is read again."""


@dataclass(frozen=True, slots=True)
class StoredWorld:
    record: Record
    revision: int
    worlds: RecordWorlds = NONE_APART
    """Worlds that are stored apart: `record` is without them until they are read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is stored of a job, as its master has it in mind."""

    spec: JobSpec
    record: Record
    ledger: Ledger | None = None


def encode_spec(spec: JobSpec) -> bytes:
    """Raises `Unreadable`."""
    return encode_readable(spec, JobSpec)


def decode_spec(job: JobName, value: bytes) -> JobSpec:
    try:
        spec = decode(value, JobSpec)
    except Undecodable as error:
        raise RecordUnreadable(f"the specification of job {job}: {error}") from error
    if spec.name != job:
        raise RecordUnreadable(f"the specification of job {job} is of a job {spec.name}")
    return spec


async def write_again(bucket: Bucket, kept: Kept) -> None:
    """For a bus that has lost it. What is there already was written since, and stays.

    In no epoch, for it is no master's decision there yet; and the specification last: who finds it reads the rest.
    """
    job = JobName(kept.spec.name)
    try:
        values = _values(job, kept)
    except Unreadable as error:
        logger(job=job).error("job_not_written_again", error=str(error))
        return
    for key, value in values.items():
        with contextlib.suppress(Conflict):
            await bucket.create(key, value)


def _values(job: JobName, kept: Kept) -> dict[str, bytes]:
    nobody = Epoch(0)
    layout = JobWorlds(job, nobody).layout(msgspec.structs.replace(kept.record, epoch=nobody))
    values = {**layout.chunks, subjects.world_key(job): layout.value}
    if kept.ledger is not None:
        values[subjects.ledger_key(job)] = encode_ledger(kept.ledger, nobody)
    values[subjects.spec_key(job)] = encode_spec(kept.spec)
    return values


class OnConflict(StrEnum):
    """What a master does whose record was not written because somebody else had written since it was read."""

    WRITE_OVER = "write over"
    """It is its own, from a write whose answer was lost, or there is none."""
    ADOPT = "adopt"
    """The master before this one wrote it late."""
    YIELD = "yield"
    """A newer master wrote it."""


def on_conflict(stored: Record | None, epoch: Epoch) -> OnConflict:
    if stored is None or stored.epoch == epoch:
        return OnConflict.WRITE_OVER
    return OnConflict.ADOPT if stored.epoch < epoch else OnConflict.YIELD


async def read_world(bucket: Bucket, job: JobName) -> StoredWorld | None:
    """The record with its worlds, wherever they are stored. Raises `BusUnavailable` and `RecordUnreadable`."""
    revision = 0
    for _ in range(READ_TRIES):
        stored = await read_record(bucket, job)
        if stored is None or stored.worlds == NONE_APART:
            return stored
        whole = await _with_worlds(bucket, job, stored)
        if whole is not None:
            return whole
        revision = stored.revision
    raise RecordUnreadable(f"the world of job {job}: some of its chunks are gone", revision)


async def read_record(bucket: Bucket, job: JobName) -> StoredWorld | None:
    """Without worlds that are stored apart. Raises `BusUnavailable` and `RecordUnreadable`."""
    entry = await bucket.get(subjects.world_key(job))
    return decode_world(job, entry) if entry is not None else None


def decode_world(job: JobName, entry: Entry) -> StoredWorld:
    try:
        worlds = decode(entry.value, RecordReferences).worlds
        return StoredWorld(decode(entry.value, Record), entry.revision, worlds)
    except Undecodable as error:
        raise RecordUnreadable(f"the world of job {job}: {error}", entry.revision) from error


def chunk_keys(job: JobName, worlds: RecordWorlds) -> set[str]:
    references = (reference for reference in (worlds.assignment, worlds.prepared) if reference is not None)
    return {key for reference in references for key in subjects.world_chunk_keys(job, reference)}


async def _with_worlds(bucket: Bucket, job: JobName, stored: StoredWorld) -> StoredWorld | None:
    record, worlds = stored.record, stored.worlds
    found: dict[str, Assignment] = {}
    try:
        for name, reference in (("assignment", worlds.assignment), ("prepared", worlds.prepared)):
            if reference is not None:
                world = await read_chunks(bucket, job, reference)
                if world is None:
                    return None
                found[name] = assignment_of(world.columns)
    except Undecodable as error:
        raise RecordUnreadable(f"the world of job {job}: {error}", stored.revision) from error
    whole = msgspec.structs.replace(
        record,
        assignment=found.get("assignment", record.assignment),
        prepared=found.get("prepared", record.prepared),
    )
    return replace(stored, record=whole)


def old_chunks(stored: Iterable[str], job: JobName, worlds: RecordWorlds, epoch: Epoch) -> list[str]:
    """Keys of stored chunks that the saved record does not name.

    Not those of a later epoch: a newer master may have stored them and not yet the record that names them."""
    named = chunk_keys(job, worlds)
    written = {key: subjects.parse_chunk_key(key) for key in stored if key not in named}
    return [key for key, chunk in written.items() if chunk is None or chunk[0] <= epoch]


async def remove_old_chunks(bucket: Bucket, job: JobName, worlds: RecordWorlds, epoch: Epoch) -> None:
    """Raises `BusUnavailable`."""
    for key in old_chunks(await bucket.revisions(subjects.world_chunks(job)), job, worlds, epoch):
        await bucket.delete(key)


async def remove_words(bus: Bus, job: JobName) -> None:
    """What a job printed, and the events about it."""
    await bus.purge(subjects.LOGS_STREAM, subjects.log(job))
    await bus.purge(subjects.EVENTS_STREAM, subjects.event(job))


async def remove_leavings(bucket: Bucket, job: JobName) -> None:
    """Of a job that is no more. If one master does not come to it, whoever makes the next one of its name does."""
    for key in (subjects.world_key(job), subjects.ledger_key(job)):
        if await bucket.get(key) is not None:
            await bucket.delete(key)
    for key in await bucket.revisions(subjects.world_chunks(job)):
        await bucket.delete(key)
