"""Reads of the stored job by a worker-agent: the last world, and how the job is launched."""

from agents.worker.events import AssignmentHeard, HaltHeard
from agents.worker.worlds import WorldCache
from messages import subjects
from messages.compact_worlds import WorldReference
from messages.decoding import Undecodable, decode
from messages.ids import JobName
from messages.jobs import Launch
from messages.records import RecordForWorkers, SpecLaunch
from messages.worlds import Assignment, Halt
from runtime.bus import Bucket
from runtime.clock import Clock
from runtime.logs import logger
from runtime.stored_worlds import read_chunks

HALT_GRACE_S = 5.0


async def read_world(
    bucket: Bucket, job: JobName, clock: Clock, worlds: WorldCache
) -> list[AssignmentHeard | HaltHeard]:
    """Reads the last assignment and halt as events. Raises `BusUnavailable`."""
    stored = await _read_record(bucket, job)
    if stored is None:
        return []
    assignment = stored.assignment
    if assignment is not None:
        worlds.hear(assignment)
    elif stored.worlds.assignment is not None:
        assignment = await _read_apart(bucket, job, stored.worlds.assignment, worlds)
    at_s = clock.monotonic_s()
    heard: list[AssignmentHeard | HaltHeard] = []
    if assignment is not None:
        heard.append(AssignmentHeard(at_s, assignment, stored.epoch))
    if stored.halted is not None:
        grace_s = assignment.stop_grace_s if assignment is not None else HALT_GRACE_S
        halt = Halt(job, stored.halted, "stored in the job's record", grace_s)
        heard.append(HaltHeard(at_s, halt, stored.epoch))
    return heard


async def read_stored(bucket: Bucket, job: JobName, reference: WorldReference, worlds: WorldCache) -> Assignment | None:
    """Reads exactly this world, from chunks or record; None if neither has it. Raises `BusUnavailable`."""
    found = worlds.find(reference) or await _read_apart(bucket, job, reference, worlds)
    if found is not None:
        return found
    stored = await _read_record(bucket, job)
    if stored is None:
        return None
    for assignment in (stored.assignment, stored.prepared):
        if assignment is not None and assignment.generation == reference.generation:
            worlds.hear(assignment)
    for apart in (stored.worlds.assignment, stored.worlds.prepared):
        if apart is not None and apart.digest == reference.digest and apart != reference:
            return await _read_apart(bucket, job, apart, worlds)
    return worlds.find(reference)


async def _read_apart(bucket: Bucket, job: JobName, reference: WorldReference, worlds: WorldCache) -> Assignment | None:
    known = worlds.find(reference)
    if known is not None:
        return known
    try:
        world = await read_chunks(bucket, job, reference)
        return worlds.hold(world) if world is not None else None
    except Undecodable as error:
        logger().warning("stored_world_unreadable", error=str(error))
        return None


async def read_submitted_at(bucket: Bucket, job: JobName) -> float:
    """Returns when the job was submitted; 0 if unknown."""
    stored = await _read_record(bucket, job)
    return stored.submitted_at if stored is not None else 0.0


async def _read_record(bucket: Bucket, job: JobName) -> RecordForWorkers | None:
    entry = await bucket.get(subjects.record_key(job))
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
