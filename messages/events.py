"""What a person wants to read: one sentence, and why."""

from msgspec import Struct, field

from messages.jobs import Scalar

FLEET = "fleet"
"""The scope of events that belong to no job."""
JOB_ENDS = {"job_succeeded": "succeeded", "job_failed": "failed", "job_stopped": "stopped"}
"""The kinds of a job's last event, and the phase that each tells."""
LOSER_FIELD = "lost_"
"""Begins the names of the fields that tell what lost to a plan; a number follows, the best has 1."""


class Event(Struct, frozen=True, omit_defaults=True):
    scope: str
    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)
