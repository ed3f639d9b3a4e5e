"""The state of the reaper: the claims of jobs, the suspects of its last look, and what it has announced."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controlplane.reaper.inventory import Key
from messages.ids import JobName


class Claim(StrEnum):
    LIVE = "live"
    """The job lives and owns all resources with its name."""
    UNREADABLE = "unreadable"
    """The job's record cannot be read: it may live."""
    ENDING = "ending"
    """The job has ended, and its master removes its resources."""
    ENDED = "ended"


Claims = Mapping[JobName, Claim]
"""Claims of all jobs with records; other jobs are unknown."""


@dataclass(frozen=True, slots=True)
class Records:
    claims: Claims
    bus: str
    """The bus with these records, as in the label of resources that were requested over it."""


@dataclass(frozen=True, slots=True)
class Reaping:
    suspects: frozenset[Key] = frozenset()
    """Resources without an owner at the last look; removed or announced if the next look finds them too."""
    announced: Mapping[Key, str] = field(default_factory=dict)
    """The last announced reason by resource, so that it is not announced at every look."""
