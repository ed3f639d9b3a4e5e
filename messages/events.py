"""What a person wants to read: one sentence, and why."""

from msgspec import Struct, field

from messages.jobs import Scalar

FLEET = "fleet"
"""The scope of events that belong to no job."""


class Event(Struct, frozen=True, omit_defaults=True):
    scope: str
    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)
