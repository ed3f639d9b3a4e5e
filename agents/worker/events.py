"""Everything that can happen to a worker-agent. `at_s` is its own monotonic clock.

Trainers are named by the generation and rank under which they were forked, except in StepCompleted.
"""

from dataclasses import dataclass

from agents.worker.trainer import Birth
from messages.ids import Epoch, Generation, Rank
from messages.workers import TrainerExit, TrainerStatus, WrittenCheckpoint
from messages.worlds import Assignment, EndStalled, Halt, Invite, Locate, Release


@dataclass(frozen=True, slots=True)
class Ticked:
    at_s: float


@dataclass(frozen=True, slots=True)
class HostWarmed:
    at_s: float


@dataclass(frozen=True, slots=True)
class HostLost:
    """The host is gone, and none of its trainers is left."""

    at_s: float
    why: str
    is_unfit: bool = False
    """The host found that this worker cannot train. Another host would find the same."""


@dataclass(frozen=True, slots=True)
class TrainerForked:
    at_s: float
    generation: Generation
    rank: Rank
    pid: int


@dataclass(frozen=True, slots=True)
class TrainerForkFailed:
    at_s: float
    generation: Generation
    rank: Rank
    error: str


@dataclass(frozen=True, slots=True)
class TrainerExited:
    at_s: float
    generation: Generation
    exit: TrainerExit


@dataclass(frozen=True, slots=True)
class TrainersStopped:
    """No trainer of this generation or an older one is alive, and none is still to be forked."""

    at_s: float
    generation: Generation


@dataclass(frozen=True, slots=True)
class TrainerAttached:
    """A trainer whose script uses the SDK has connected."""

    at_s: float
    generation: Generation
    rank: Rank


@dataclass(frozen=True, slots=True)
class TrainerSaid:
    """A live trainer sent its status, which has its current rank."""

    at_s: float
    generation: Generation
    rank: Rank
    status: TrainerStatus


@dataclass(frozen=True, slots=True)
class TrainerDetached:
    """The connection of a trainer broke. Only the host knows whether the trainer is alive."""

    at_s: float
    generation: Generation
    rank: Rank


@dataclass(frozen=True, slots=True)
class TrainersSeen:
    """The attached trainers whose processes are neither ended nor stopped."""

    at_s: float
    running: frozenset[Birth]


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A trainer that uses the SDK has written a checkpoint."""

    at_s: float
    checkpoint: WrittenCheckpoint


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """A rank of this world has completed a step."""

    at_s: float
    generation: Generation
    rank: Rank
    step: int


@dataclass(frozen=True, slots=True)
class CheckpointReported:
    """A script without the SDK reported a checkpoint in this world, or one was found at `launch.checkpoint_path`."""

    at_s: float
    generation: Generation
    at: float = 0.0
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class AssignmentHeard:
    at_s: float
    assignment: Assignment
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class HaltHeard:
    at_s: float
    halt: Halt
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class LocateHeard:
    at_s: float
    locate: Locate
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class EndStalledHeard:
    at_s: float
    order: EndStalled
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class InviteHeard:
    at_s: float
    invite: Invite
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class ReleaseHeard:
    at_s: float
    release: Release
    epoch: Epoch | None


@dataclass(frozen=True, slots=True)
class NoticeCame:
    at_s: float
    remaining_s: float
    source: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    at_s: float
    why: str
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class BusLost:
    at_s: float


@dataclass(frozen=True, slots=True)
class BusBack:
    at_s: float


WorkerEvent = (
    Ticked
    | CheckpointReported
    | CheckpointWritten
    | HostWarmed
    | HostLost
    | TrainerForked
    | TrainerForkFailed
    | TrainerExited
    | TrainersStopped
    | TrainerAttached
    | TrainerSaid
    | TrainerDetached
    | TrainersSeen
    | StepCompleted
    | AssignmentHeard
    | HaltHeard
    | LocateHeard
    | EndStalledHeard
    | InviteHeard
    | ReleaseHeard
    | NoticeCame
    | StopAsked
    | BusLost
    | BusBack
)
