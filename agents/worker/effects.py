"""Everything that the worker-agent's core may request from its shell."""

from dataclasses import dataclass

from agents.worker.commands import TrainerCommand
from agents.worker.state import WorkerState
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, WorkerStatus
from messages.worlds import Assignment


@dataclass(frozen=True, slots=True)
class StartHost:
    """Starts a host; HostWarmed or HostLost answers."""


@dataclass(frozen=True, slots=True)
class ForkTrainers:
    """Forks a trainer for each rank of this worker; TrainerForked or TrainerForkFailed answers for each.

    Invited trainers, one for each slot, have ranks behind the world's and warm up outside of it."""

    assignment: Assignment
    invited: bool = False
    terms: str = ""
    """What invited trainers must have in common with those of the world."""


@dataclass(frozen=True, slots=True)
class StopTrainers:
    """Stops all trainers of this generation and older ones; TrainersStopped or HostLost answers."""

    generation: Generation
    grace_s: float


@dataclass(frozen=True, slots=True)
class TellTrainer:
    """Sends a command to the trainer that was forked with this generation and rank, if it is attached."""

    generation: Generation
    rank: Rank
    command: TrainerCommand


@dataclass(frozen=True, slots=True)
class LookAtTrainers:
    """Checks which trainers' processes run; TrainersSeen answers."""


@dataclass(frozen=True, slots=True)
class AbortTrainer:
    """Records the stacks of the trainer that was forked with this generation and rank, then kills it; TrainerExited
    answers."""

    generation: Generation
    rank: Rank
    why: str


@dataclass(frozen=True, slots=True)
class TellFact:
    fact: str
    status: WorkerStatus
    exit: TrainerExit | None = None
    step: int | None = None
    why: str = ""
    is_unfit: bool = False


@dataclass(frozen=True, slots=True)
class TellNotice:
    remaining_s: float
    source: str


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    status: WorkerStatus


@dataclass(frozen=True, slots=True)
class FlushProgress:
    """Sends the reports of older steps before the next fact."""


@dataclass(frozen=True, slots=True)
class ReadStoredWorld:
    """Reads the stored world, because messages may be lost; AssignmentHeard and HaltHeard answer."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Ends the process with this exit code."""

    code: int
    why: str


WorkerEffect = (
    StartHost
    | ForkTrainers
    | StopTrainers
    | TellTrainer
    | LookAtTrainers
    | AbortTrainer
    | TellFact
    | TellNotice
    | SendHeartbeat
    | FlushProgress
    | ReadStoredWorld
    | Leave
)

Step = tuple[WorkerState, list[WorkerEffect]]
"""The state after a rule, and the effects that the rule requests."""
