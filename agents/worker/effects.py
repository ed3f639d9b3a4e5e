"""Everything a worker-agent may ask for."""

from dataclasses import dataclass

from agents.worker.commands import TrainerCommand
from agents.worker.state import WorkerState
from messages.ids import Generation, Rank
from messages.workers import TrainerExit, WorkerStatus
from messages.worlds import Assignment


@dataclass(frozen=True, slots=True)
class StartHost:
    """Answered by HostWarmed or HostLost."""


@dataclass(frozen=True, slots=True)
class ForkTrainers:
    """One for each rank the assignment gives this worker; each is answered by TrainerForked or TrainerForkFailed.

    Invited: one for each slot, ranked behind the world, to warm up outside of it."""

    assignment: Assignment
    invited: bool = False
    terms: str = ""
    """What those who are invited must have alike with those that train."""


@dataclass(frozen=True, slots=True)
class StopTrainers:
    """All that were forked in this generation or an older one; answered by TrainersStopped or HostLost."""

    generation: Generation
    grace_s: float


@dataclass(frozen=True, slots=True)
class TellTrainer:
    """The one that was forked as this generation and rank, if it is attached."""

    generation: Generation
    rank: Rank
    command: TrainerCommand


@dataclass(frozen=True, slots=True)
class LookAtTrainers:
    """Answered by TrainersSeen."""


@dataclass(frozen=True, slots=True)
class AbortTrainer:
    """The one that was forked as this generation and rank: its stacks are recorded, then it is killed. Answered by
    TrainerExited."""

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
    """What was reported of older steps goes out before the next fact."""


@dataclass(frozen=True, slots=True)
class Leave:
    """End the process with this exit code."""

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
    | Leave
)

Step = tuple[WorkerState, list[WorkerEffect]]
"""The state after a rule, and what the rule asks for."""
