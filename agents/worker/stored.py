"""What a worker-agent reads of the stored job: the last world, for a worker that comes late, and how it is run."""

from agents.worker.events import AssignmentHeard, HaltHeard
from messages import subjects
from messages.decoding import Undecodable, decode
from messages.ids import JobName
from messages.jobs import Launch
from messages.records import RecordForWorkers, SpecLaunch
from messages.worlds import Halt
from runtime.bus import Bucket
from runtime.clock import Clock
from runtime.logs import logger

HALT_GRACE_S = 5.0


async def read_world(bucket: Bucket, job: JobName, clock: Clock) -> list[AssignmentHeard | HaltHeard]:
    stored = await _read_record(bucket, job)
    at_s = clock.monotonic_s()
    if stored is None:
        return []
    heard: list[AssignmentHeard | HaltHeard] = []
    if stored.assignment is not None:
        heard.append(AssignmentHeard(at_s, stored.assignment, stored.epoch))
    if stored.halted is not None:
        halt = Halt(job, stored.halted, "as kept in the job's record", _grace_s(stored))
        heard.append(HaltHeard(at_s, halt, stored.epoch))
    return heard


async def read_submitted_at(bucket: Bucket, job: JobName) -> float:
    """0 if it is not known."""
    stored = await _read_record(bucket, job)
    return stored.submitted_at if stored is not None else 0.0


async def _read_record(bucket: Bucket, job: JobName) -> RecordForWorkers | None:
    entry = await bucket.get(subjects.world_key(job))
    if entry is None:
        return None
    try:
        return decode(entry.value, RecordForWorkers)
    except Undecodable as error:
        logger().warning("stored_world_unreadable", error=str(error))
        return None


async def read_launch(bucket: Bucket, job: JobName) -> Launch | None:
    entry = await bucket.get(subjects.spec_key(job))
    if entry is None:
        return None
    try:
        return decode(entry.value, SpecLaunch).launch
    except Undecodable as error:
        logger().warning("stored_spec_unreadable", error=str(error))
        return None


def _grace_s(stored: RecordForWorkers) -> float:
    return stored.assignment.stop_grace_s if stored.assignment is not None else HALT_GRACE_S
