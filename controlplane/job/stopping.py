"""The end of a world that no other follows: the job is stopped or paused.

Trainers may first reach the end of their loop body and save a checkpoint. Only the step in progress is lost. The job
has stopped when no trainer is left.
"""

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from controlplane.job.state import Job
from messages.workers import WrittenCheckpoint

LEAST_GRACE_S: Final = 30.0
"""Least default seconds from SIGTERM to SIGKILL."""

MOST_GRACE_S: Final = 86_400.0
"""Longest accepted grace period in seconds."""

STEPS_OF_GRACE: Final = 2


def is_ending(job: Job) -> bool:
    """True if no world follows the current one, because the job stops or pauses."""
    return job.record.stop_why is not None or job.record.paused is not None


def grace_s(job: Job) -> float:
    """Seconds from SIGTERM to SIGKILL of the current world's trainers."""
    usual_s = job.spec.timeouts.stop_grace_s
    if not is_ending(job):
        return usual_s
    asked_s = job.record.stop_grace_s
    return max(usual_s, LEAST_GRACE_S) if asked_s is None else asked_s


def default_grace_s(job: Job, longest_step_s: float) -> float:
    """Seconds of grace that suffice for a step that begins now and a checkpoint."""
    return min(MOST_GRACE_S, max(STEPS_OF_GRACE * longest_step_s, job.spec.timeouts.stop_grace_s, LEAST_GRACE_S))


def ask_to_stop(job: Job, why: str, grace_s: float | None) -> Job:
    record = job.record
    if record.phase.ended:
        return job
    given = [each for each in (record.stop_grace_s, grace_s) if each is not None]
    stopping = replace(record, stop_why=record.stop_why or why, stop_grace_s=min(given, default=None))
    return replace(job, record=stopping, round=replace(job.round, published_s=None)) if stopping != record else job


def note_checkpoint(job: Job, reported: WrittenCheckpoint | None) -> Job:
    """Stores the newest checkpoint by its writer's clock, because steps may decrease after a resume.

    A checkpoint without a step does not replace one with a step."""
    known = job.checkpoint
    if reported is None or (
        known is not None and (reported.at <= known.at or (reported.step is None and known.step is not None))
    ):
        return job
    return replace(job, checkpoint=reported)


def checkpoint_text(checkpoint: WrittenCheckpoint | None) -> str:
    if checkpoint is None:
        return "no checkpoint is known"
    if checkpoint.step is None:
        return f"newest checkpoint of its script: {datetime.fromtimestamp(checkpoint.at, UTC):%H:%M:%S} UTC"
    return f"newest checkpoint: step {checkpoint.step} in {checkpoint.folder}"
