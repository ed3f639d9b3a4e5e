"""Jobs as they are kept in KV: `jobs.<job>.spec` and `jobs.<job>.world`."""

import contextlib
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from controlplane.ledger.records import encode_ledger
from controlplane.ledger.state import Ledger
from messages import subjects
from messages.decoding import Undecodable, Unreadable, decode, encode_readable
from messages.ids import Epoch, JobName
from messages.jobs import JobSpec
from messages.records import Record, encode_record
from runtime.bus import Bucket, Bus, Entry
from runtime.errors import Conflict, Permanent
from runtime.logs import logger


class RecordUnreadable(Permanent):
    """What is stored under a job's name is not what a master writes."""

    def __init__(self, sentence: str, revision: int = 0) -> None:
        super().__init__(sentence)
        self.revision = revision


@dataclass(frozen=True, slots=True)
class StoredWorld:
    record: Record
    revision: int


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
    values = {subjects.world_key(job): encode_record(msgspec.structs.replace(kept.record, epoch=nobody))}
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
    entry = await bucket.get(subjects.world_key(job))
    return decode_world(job, entry) if entry is not None else None


def decode_world(job: JobName, entry: Entry) -> StoredWorld:
    try:
        return StoredWorld(decode(entry.value, Record), entry.revision)
    except Undecodable as error:
        raise RecordUnreadable(f"the world of job {job}: {error}", entry.revision) from error


async def remove_words(bus: Bus, job: JobName) -> None:
    """What a job printed, and the events about it."""
    await bus.purge(subjects.LOGS_STREAM, subjects.log(job))
    await bus.purge(subjects.EVENTS_STREAM, subjects.event(job))


async def remove_leavings(bucket: Bucket, job: JobName) -> None:
    """Of a job that is no more. If one master does not come to it, whoever makes the next one of its name does."""
    for key in (subjects.world_key(job), subjects.ledger_key(job)):
        if await bucket.get(key) is not None:
            await bucket.delete(key)
