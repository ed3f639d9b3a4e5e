"""Jobs as they are kept in KV: `jobs.<job>.spec` and `jobs.<job>.world`."""

from dataclasses import dataclass

import msgspec

from controlplane.job.state import Record
from messages import subjects
from messages.ids import JobName
from messages.jobs import JobSpec
from runtime.bus import Bucket
from runtime.errors import Permanent


class RecordUnreadable(Permanent):
    """What is stored under a job's name is not what a master writes."""

    def __init__(self, sentence: str, revision: int = 0) -> None:
        super().__init__(sentence)
        self.revision = revision


@dataclass(frozen=True, slots=True)
class StoredWorld:
    record: Record
    revision: int


def encode_spec(spec: JobSpec) -> bytes:
    return msgspec.json.encode(spec)


def decode_spec(job: JobName, value: bytes) -> JobSpec:
    try:
        spec = msgspec.json.decode(value, type=JobSpec)
    except msgspec.DecodeError as error:
        raise RecordUnreadable(f"the specification of job {job}: {error}") from error
    if spec.name != job:
        raise RecordUnreadable(f"the specification of job {job} is of a job {spec.name}")
    return spec


def encode_world(record: Record) -> bytes:
    """The record, and `halted` for workers that come late: nothing below that generation may run."""
    return msgspec.json.encode(msgspec.to_builtins(record) | {"halted": record.generation})


async def read_world(bucket: Bucket, job: JobName) -> StoredWorld | None:
    entry = await bucket.get(subjects.world_key(job))
    if entry is None:
        return None
    try:
        return StoredWorld(msgspec.json.decode(entry.value, type=Record), entry.revision)
    except msgspec.DecodeError as error:
        raise RecordUnreadable(f"the world of job {job}: {error}", entry.revision) from error
