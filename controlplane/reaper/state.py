"""What the reaper knows: who claims what, what it suspected at its last look, and what it has announced."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.reaper.inventory import Key
from messages.ids import JobName


class Claim(StrEnum):
    LIVE = "live"
    """It answers for what carries its name."""
    UNREADABLE = "unreadable"
    """There is a record of it that cannot be read: it may live."""
    ENDING = "ending"
    """It has ended, and its master is removing what it had."""
    ENDED = "ended"


Claims = Mapping[JobName, Claim]
"""Of all jobs that there are records of; of others nobody knows."""


@dataclass(frozen=True, slots=True)
class Records:
    claims: Claims
    bus: str
    """That they are on, as in the label of what was asked for over it."""


@dataclass(frozen=True, slots=True)
class Reaping:
    suspects: frozenset[Key] = frozenset()
    """What the last look found to be nobody's: it goes, or is announced, if the next one finds the same."""
    announced: Mapping[Key, str] = field(default_factory=dict)
    """What was in the way of each, so that it is not announced at every look."""
