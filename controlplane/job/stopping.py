"""The end of a job's world with none to follow: it is stopped, or paused.

Its trainers are ended, but may first reach the end of their loop body and save. The step in progress is lost; the
steps before it are not. The job waits for that: it has stopped when nobody trains any more.
"""

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from controlplane.job.state import Job
from messages.workers import WrittenCheckpoint

LEAST_GRACE_S: Final = 30.0
"""From SIGTERM to SIGKILL where nobody said otherwise."""

MOST_GRACE_S: Final = 86_400.0
"""Seconds, the most that can be asked for."""

STEPS_OF_GRACE: Final = 2


def is_ending(job: Job) -> bool:
    """No world follows the one that is being ended."""
    return job.record.stop_why is not None or job.record.paused is not None


def grace_s(job: Job) -> float:
    """From SIGTERM to SIGKILL of trainers in the present round."""
    usual_s = job.spec.timeouts.stop_grace_s
    if not is_ending(job):
        return usual_s
    asked_s = job.record.stop_grace_s
    return max(usual_s, LEAST_GRACE_S) if asked_s is None else asked_s


def default_grace_s(job: Job, longest_step_s: float) -> float:
    """Enough for a step that began just now and takes as long as the longest of late, and for a checkpoint."""
    return min(MOST_GRACE_S, max(STEPS_OF_GRACE * longest_step_s, job.spec.timeouts.stop_grace_s, LEAST_GRACE_S))


def ask_to_stop(job: Job, why: str, grace_s: float | None) -> Job:
    record = job.record
    if record.phase.ended:
        return job
    given = [each for each in (record.stop_grace_s, grace_s) if each is not None]
    stopping = replace(record, stop_why=record.stop_why or why, stop_grace_s=min(given, default=None))
    return replace(job, record=stopping, round=replace(job.round, published_s=None)) if stopping != record else job


def keep_checkpoint(job: Job, told: WrittenCheckpoint | None) -> Job:
    """The newest by the clock of who wrote it: after a resume from an older one the steps begin lower again. One whose
    step is not known does not replace one whose step is."""
    known = job.checkpoint
    if told is None or (known is not None and (told.at <= known.at or (told.step is None and known.step is not None))):
        return job
    return replace(job, checkpoint=told)


def checkpoint_text(checkpoint: WrittenCheckpoint | None) -> str:
    if checkpoint is None:
        return "no checkpoint is known"
    if checkpoint.step is None:
        return f"newest checkpoint of its script: {datetime.fromtimestamp(checkpoint.at, UTC):%H:%M:%S} UTC"
    return f"newest checkpoint: step {checkpoint.step} in {checkpoint.folder}"
