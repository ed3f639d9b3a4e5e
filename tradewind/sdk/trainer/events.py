"""Events of a trainer. `at_s` is monotonic."""

from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.protocol.trainer import Assign


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


# Orders of the agent.


@dataclass(frozen=True, slots=True)
class Assigned:
    at_s: float
    assign: Assign


@dataclass(frozen=True, slots=True)
class Halted:
    at_s: float
    generation: int
    """Worlds of lower generations are dead."""


@dataclass(frozen=True, slots=True)
class Leased:
    at_s: float
    valid_s: float


@dataclass(frozen=True, slots=True)
class StatusAsked:
    """The agent, or the training thread after it applied the step of a switch, requests a report."""

    at_s: float


# Builders of process groups.


@dataclass(frozen=True, slots=True)
class GroupBuilt:
    at_s: float
    generation: int


@dataclass(frozen=True, slots=True)
class BuildFailed:
    at_s: float
    generation: int


# The training thread.


@dataclass(frozen=True, slots=True)
class WorldAwaited:
    """The training thread is in no world and waits for the next one."""

    at_s: float


@dataclass(frozen=True, slots=True)
class GroupAwaited:
    """The training thread will enter a collective when the group is built."""

    at_s: float
    step: int | None = None
    """None for the current step."""


@dataclass(frozen=True, slots=True)
class ReadinessDeclared:
    """The control words of this rank declare which world it is ready for: a promise until that all-reduce ends."""

    at_s: float


@dataclass(frozen=True, slots=True)
class WaitedLong:
    """The collective takes much longer than a step should."""

    at_s: float


@dataclass(frozen=True, slots=True)
class CollectiveEnded:
    """A collective that was no step has ended."""

    at_s: float
    ok: bool


@dataclass(frozen=True, slots=True)
class StepReduced:
    """The all-reduce of a step has completed here, with the control words of all ranks."""

    at_s: float
    active: tuple[bool, ...]
    """By rank: True if it takes a share from now on."""
    ready: int | None = None
    """The generation that all ranks are ready for."""
    ends_after: int | None = None
    """The number of steps after which the run is over, if some rank requested its end."""
    counts: bool = True
    """False for an all-reduce that is no step for this rank."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    at_s: float


@dataclass(frozen=True, slots=True)
class Started:
    """All ranks of a first world have the same state."""

    at_s: float
    done: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """This rank missed the last all-reduce and now has its result."""

    at_s: float
    done: int
    ends_after: int | None = None


@dataclass(frozen=True, slots=True)
class StateReceived:
    """This joining rank has the state from before step `done`."""

    at_s: float
    done: int


@dataclass(frozen=True, slots=True)
class GaveUp:
    """This joining rank cannot get the state. It waits for another world after a rest."""

    at_s: float
    why: str
    rest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PauseBegan:
    at_s: float
    reason: str
    since: float
    """Unix seconds, for people."""


@dataclass(frozen=True, slots=True)
class PauseEnded:
    at_s: float
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Finished:
    """All ranks have completed all steps."""

    at_s: float
    certificate: Mapping[str, int | str]


TrainerEvent = (
    Ticked
    | Assigned
    | Halted
    | Leased
    | StatusAsked
    | GroupBuilt
    | BuildFailed
    | WorldAwaited
    | GroupAwaited
    | ReadinessDeclared
    | WaitedLong
    | CollectiveEnded
    | StepReduced
    | StepFailed
    | Started
    | CaughtUp
    | StateReceived
    | GaveUp
    | PauseBegan
    | PauseEnded
    | Finished
)
