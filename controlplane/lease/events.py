"""Everything that can happen to a lease. Each event has the time of its decision, not of its arrival."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float
    pulse_s: float
    """When the main loop last showed that it runs."""


@dataclass(frozen=True, slots=True)
class KeySeen:
    """A change of the key from the watch, in order of revisions; the holder is None if it expired or was deleted."""

    at_s: float
    revision: int
    holder: str | None


@dataclass(frozen=True, slots=True)
class KeyRead:
    """The answer to a ReadKey. Revision 0: the key does not exist."""

    at_s: float
    attempt: int
    revision: int
    holder: str | None


@dataclass(frozen=True, slots=True)
class KeyForgotten:
    """The bus lost its data: revisions start again."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """The key was acquired or renewed."""

    at_s: float
    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The write failed, because the key has another revision."""

    at_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An attempt without an answer; a write may have happened or not."""

    at_s: float
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class BusLost:
    at_s: float


@dataclass(frozen=True, slots=True)
class BusBack:
    at_s: float


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """The leader's work has ended after a StepDown."""

    at_s: float


LeaseEvent = (
    Ticked | KeySeen | KeyRead | KeyForgotten | Written | Conflicted | Unanswered | BusLost | BusBack | WorkEnded
)
