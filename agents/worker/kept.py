"""What a worker-agent reads from KV: the job's last world, for whoever comes late, and how the job is to be run."""

from msgspec import Struct

from agents.worker.events import AssignmentHeard, HaltHeard
from messages import subjects
from messages.decoding import Undecodable, decode
from messages.ids import Epoch, Generation, JobName
from messages.jobs import Launch
from messages.worlds import Assignment, Halt
from runtime.bus import Bucket
from runtime.clock import Clock
from runtime.logs import logger

HALT_GRACE_S = 5.0


class KeptWorld(Struct, frozen=True):
    """The part of the job's record that concerns workers."""

    assignment: Assignment | None = None
    epoch: Epoch | None = None
    halted: Generation | None = None
    """Nothing below it may run."""
    submitted_at: float = 0.0


class KeptSpec(Struct, frozen=True):
    launch: Launch


async def read_world(bucket: Bucket, job: JobName, clock: Clock) -> list[AssignmentHeard | HaltHeard]:
    kept = await _read_kept(bucket, job)
    at_s = clock.monotonic_s()
    if kept is None:
        return []
    heard: list[AssignmentHeard | HaltHeard] = []
    if kept.assignment is not None:
        heard.append(AssignmentHeard(at_s, kept.assignment, kept.epoch))
    if kept.halted is not None:
        halt = Halt(job, kept.halted, "as kept in the job's record", _grace_s(kept))
        heard.append(HaltHeard(at_s, halt, kept.epoch))
    return heard


async def read_submitted_at(bucket: Bucket, job: JobName) -> float:
    """0 if it is not known."""
    kept = await _read_kept(bucket, job)
    return kept.submitted_at if kept is not None else 0.0


async def _read_kept(bucket: Bucket, job: JobName) -> KeptWorld | None:
    entry = await bucket.get(subjects.world_key(job))
    if entry is None:
        return None
    try:
        return decode(entry.value, KeptWorld)
    except Undecodable as error:
        logger().warning("kept_world_unreadable", error=str(error))
        return None


async def read_launch(bucket: Bucket, job: JobName) -> Launch | None:
    entry = await bucket.get(subjects.spec_key(job))
    if entry is None:
        return None
    try:
        return decode(entry.value, KeptSpec).launch
    except Undecodable as error:
        logger().warning("kept_spec_unreadable", error=str(error))
        return None


def _grace_s(kept: KeptWorld) -> float:
    return kept.assignment.stop_grace_s if kept.assignment is not None else HALT_GRACE_S
