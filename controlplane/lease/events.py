"""Everything that can happen to a lease. Each event has the time at which it is decided, not the one of its arrival."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float
    pulse_s: float
    """When the loop that runs the leader's work last showed that it runs."""


@dataclass(frozen=True, slots=True)
class KeySeen:
    """Told by the watch, in the order of revisions; the holder is None when the key expired or was deleted."""

    at_s: float
    revision: int
    holder: str | None


@dataclass(frozen=True, slots=True)
class KeyRead:
    """The answer to a ReadKey. Revision 0: there is no such key."""

    at_s: float
    attempt: int
    revision: int
    holder: str | None


@dataclass(frozen=True, slots=True)
class KeyForgotten:
    """The bus has lost what it had stored: revisions begin anew."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """The key was acquired or renewed."""

    at_s: float
    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Not written: the key has another revision."""

    at_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """It may have been written, or not."""

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
    """After a StepDown: nothing of what was done as the leader runs any more."""

    at_s: float


LeaseEvent = (
    Ticked | KeySeen | KeyRead | KeyForgotten | Written | Conflicted | Unanswered | BusLost | BusBack | WorkEnded
)
