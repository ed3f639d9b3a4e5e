"""Everything that can happen to a trainer. `at_s` is monotonic."""

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
    """Worlds below are dead."""


@dataclass(frozen=True, slots=True)
class Leased:
    at_s: float
    valid_s: float


@dataclass(frozen=True, slots=True)
class StatusAsked:
    """By the agent, or by the training thread when it has applied the step of a switch."""

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
    """It has left its world, or has none, and waits for the next."""

    at_s: float


@dataclass(frozen=True, slots=True)
class GroupAwaited:
    """It is going to enter a collective when the group is built."""

    at_s: float
    step: int | None = None
    """None for the step that is computed."""


@dataclass(frozen=True, slots=True)
class ReadinessDeclared:
    """It writes into its control words which world it is ready for: a promise until that all-reduce has ended."""

    at_s: float


@dataclass(frozen=True, slots=True)
class WaitedLong:
    """The collective takes much longer than a step should."""

    at_s: float


@dataclass(frozen=True, slots=True)
class CollectiveEnded:
    """A collective that was no step."""

    at_s: float
    ok: bool


@dataclass(frozen=True, slots=True)
class StepReduced:
    """The all-reduce of a step has completed here, with the control words of all ranks."""

    at_s: float
    active: tuple[bool, ...]
    """By rank: whether it takes a share from now on."""
    ready: int | None = None
    """The generation that all ranks are ready for."""
    ends_after: int | None = None
    """The number of steps after which the run is over, if some rank asked for its end."""
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
    """This rank had missed the last all-reduce and has its result now."""

    at_s: float
    done: int
    ends_after: int | None = None


@dataclass(frozen=True, slots=True)
class StateReceived:
    """A joining rank has the state as it was before step `done`."""

    at_s: float
    done: int


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A joining rank cannot get the state of the others. It needs another world, but not before it has rested."""

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
    """All steps are done, and every rank has them."""

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
