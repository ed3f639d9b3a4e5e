"""Reads, writes again and removes what KV stores of a job: its spec, record, ledger, and the chunks of large worlds."""

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from controlplane.jobs.worlds import JobWorlds
from controlplane.ledger.records import encode_ledger
from controlplane.ledger.state import Ledger
from messages import subjects
from messages.compact_worlds import assignment_of
from messages.decoding import NotStorable, Undecodable, decode, encode_readable
from messages.ids import Epoch, JobName
from messages.jobs import JobSpec
from messages.records import NONE_APART, Record, RecordDocument, RecordWorlds
from messages.worlds import Assignment
from runtime.bus import Bucket, Bus, Entry
from runtime.errors import Conflict, Permanent
from runtime.logs import logger
from runtime.stored_worlds import read_chunks


class RecordUnreadable(Permanent):
    """The stored record or specification of a job cannot be used: it cannot be decoded, or its chunks are missing.

    `revision` is that of the record, 0 for a specification.
    """

    def __init__(self, message: str, revision: int = 0) -> None:
        super().__init__(message)
        self.revision = revision


READ_TRIES = 3
"""Most reads of a record whose chunks are missing: usually a newer world replaced them meanwhile."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    record: Record
    revision: int
    worlds: RecordWorlds = NONE_APART
    """References to worlds that are stored in chunks; `read_record` leaves these worlds out of `record`."""


@dataclass(frozen=True, slots=True)
class RememberedJob:
    """A job in the memory of its master, with everything that KV must have of it."""

    spec: JobSpec
    record: Record
    ledger: Ledger | None = None


def encode_spec(spec: JobSpec) -> bytes:
    """Raises `NotStorable`."""
    return encode_readable(spec, JobSpec)


def decode_spec(job: JobName, value: bytes) -> JobSpec:
    try:
        spec = decode(value, JobSpec)
    except Undecodable as error:
        raise RecordUnreadable(f"the specification of job {job}: {error}") from error
    if spec.name != job:
        raise RecordUnreadable(f"the specification of job {job} names job {spec.name}")
    return spec


async def write_again(bucket: Bucket, remembered: RememberedJob) -> None:
    """Writes a job to a bus that lost its data. Existing keys are newer and stay. Raises `BusUnavailable`.

    The epoch is 0, because no master has written it there. The specification comes last: a master that finds it reads
    the rest.
    """
    job = JobName(remembered.spec.name)
    try:
        values = _values(job, remembered)
    except NotStorable as error:
        logger(job=job).error("job_not_written_again", error=str(error))
        return
    for key, value in values.items():
        with contextlib.suppress(Conflict):
            await bucket.create(key, value)


def _values(job: JobName, remembered: RememberedJob) -> dict[str, bytes]:
    no_epoch = Epoch(0)
    layout = JobWorlds(job, no_epoch).layout(msgspec.structs.replace(remembered.record, epoch=no_epoch))
    values = {**layout.chunks, subjects.record_key(job): layout.value}
    if remembered.ledger is not None:
        values[subjects.ledger_key(job)] = encode_ledger(remembered.ledger, no_epoch)
    values[subjects.spec_key(job)] = encode_spec(remembered.spec)
    return values


class OnConflict(StrEnum):
    """What a master does if the stored record changed since it last read or wrote it."""

    WRITE_OVER = "write over"
    """Overwrites the record: it is gone, or the master wrote it itself and the answer was lost."""
    READ_AGAIN = "read again"
    """Takes the job over again from the record, which the previous master wrote late."""
    YIELD = "yield"
    """Leaves the record alone: a newer master wrote it."""


def on_conflict(stored: Record | None, epoch: Epoch) -> OnConflict:
    """Decides by the epoch of the stored record; `epoch` is that of the master."""
    if stored is None or stored.epoch == epoch:
        return OnConflict.WRITE_OVER
    return OnConflict.READ_AGAIN if stored.epoch < epoch else OnConflict.YIELD


async def read_whole_record(bucket: Bucket, job: JobName) -> StoredRecord | None:
    """Reads the record with its worlds. Raises `BusUnavailable` and `RecordUnreadable`."""
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


async def read_record(bucket: Bucket, job: JobName) -> StoredRecord | None:
    """Reads the record without worlds that are stored apart. Raises `BusUnavailable` and `RecordUnreadable`."""
    entry = await bucket.get(subjects.record_key(job))
    return decode_record(job, entry) if entry is not None else None


def decode_record(job: JobName, entry: Entry) -> StoredRecord:
    try:
        document = decode(entry.value, RecordDocument)
    except Undecodable as error:
        raise RecordUnreadable(f"the record of job {job}: {error}", entry.revision) from error
    return StoredRecord(document.record, entry.revision, document.worlds)


async def _with_worlds(bucket: Bucket, job: JobName, stored: StoredRecord) -> StoredRecord | None:
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


async def remove_output(bus: Bus, job: JobName) -> None:
    """Removes the logs and the events of a job."""
    await bus.purge(subjects.LOGS_STREAM, subjects.log(job))
    await bus.purge(subjects.EVENTS_STREAM, subjects.event(job))


async def remove_rest(bucket: Bucket, job: JobName) -> None:
    """Removes all keys of a job but its spec. The next job of the name removes what a failed call leaves."""
    for key in (subjects.record_key(job), subjects.ledger_key(job)):
        if await bucket.get(key) is not None:
            await bucket.delete(key)
    for key in await bucket.revisions(subjects.world_chunks(job)):
        await bucket.delete(key)
