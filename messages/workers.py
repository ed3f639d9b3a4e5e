"""Messages of worker-agents, and the commands to them.

Each fact and each heartbeat contains the worker's whole status, so the next heartbeat replaces a lost fact. Receivers
ignore a status with an older `seq`.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from messages.ids import (
    NO_GENERATION,
    ClusterName,
    Counted,
    Duration,
    Generation,
    JobName,
    Range,
    Rank,
    Slots,
    UnixSeconds,
    WorkerId,
)


class WorkerPhase(StrEnum):
    WARMING = "warming"
    """The host is importing torch; the worker cannot take ranks yet."""
    IDLE = "idle"
    """Warm, without ranks and trainers: free, or a spare."""
    STOPPING = "stopping"
    """Trainers of an older generation are being ended."""
    PARKED = "parked"
    """No trainer takes part in a generation below `generation`."""
    STARTING = "starting"
    """Trainers of `generation` are being forked."""
    READY = "ready"
    """All trainers of `generation` were forked."""
    ENDED = "ended"
    """All trainers of `generation` have exited; `exits` tells how."""
    LEAVING = "leaving"
    """Is about to end; takes no more ranks."""


SENT_BY_OTHERS = ("SIGKILL", "SIGTERM")
"""Signals that end a process from outside. Others, such as SIGSEGV, are caused by the process itself."""


class TrainerExit(Struct, frozen=True, omit_defaults=True):
    rank: Rank
    code: int | None = None
    signal: str | None = None
    tail: tuple[str, ...] = ()
    """The last traceback, or the last lines of standard error; empty after a clean exit."""
    error: str | None = None
    """What the script wrote to TORCHELASTIC_ERROR_FILE."""
    peer_lost: bool = False
    """True if the trainer failed because the connection to a peer broke."""
    early: bool = False
    """True if a live trainer ended with 0 before the last step."""
    stalled: str = ""
    """Why the trainer was removed, if its peers waited too long for it; `error` is then its Python stack."""
    hint: str | None = None
    """What a person can do about it."""

    @property
    def by_itself(self) -> bool:
        """True if the trainer failed, and neither a peer nor a signal from outside explains that."""
        return bool(self.stalled) or not (self.clean or self.peer_lost or self.signal in SENT_BY_OTHERS)

    @property
    def clean(self) -> bool:
        return self.code == 0


class SampleCertificate(Struct, frozen=True, omit_defaults=True):
    """A proof of which samples a finished run has trained on (SDK)."""

    steps: Counted
    samples: Counted
    lost: Counted = 0
    repeated: Counted = 0
    wrong: Counted = 0
    """Steps with the right number of samples, but wrong ones."""
    recomputed: Counted = 0
    """Steps that all ranks lost and that were computed again from a checkpoint."""
    nonfinite: Counted = 0
    """Steps in which a rank's loss or gradient was NaN or infinite."""
    skipped: Counted = 0
    """Steps whose gradient was not applied, because it was not finite."""
    message: str = ""
    """The certificate in words."""

    @property
    def holds(self) -> bool:
        return self.lost == self.repeated == self.wrong == 0


class WrittenCheckpoint(Struct, frozen=True):
    """A checkpoint that a trainer has written. Without the SDK, only its time is known."""

    step: Counted | None = None
    """The next step after a resume from the checkpoint (SDK)."""
    folder: Annotated[str, Meta(max_length=4096)] = ""
    """The folder of the checkpoint (SDK)."""
    at: UnixSeconds = 0.0
    """When it was written (SDK), or when the worker-agent learned of it."""


class TrainerStatus(Struct, frozen=True, omit_defaults=True, gc=False):
    """The status of a live trainer."""

    local_rank: Counted
    rank: Rank = Rank(0)
    generation: Generation = NO_GENERATION
    """The generation of its current world; 0 before its first."""
    parked: Generation = NO_GENERATION
    """The trainer is in no world below this generation."""
    done: Counted = 0
    """Number of steps whose all-reduced gradient it has; also the number of its next step."""
    held: tuple[Range, ...] = ()
    """The samples of step `done` whose gradients it has or is computing."""
    active: bool = False
    """True if it has the whole training state and takes a share of each step."""
    finished: bool = False
    """True if all steps are done and all ranks have them."""
    broken: Generation = NO_GENERATION
    """The newest world in which a collective failed, or that it could not build. A peer may be dead."""
    parking: Generation = NO_GENERATION
    """The generation for which it must park and has not, while its agent has seen that it is alive."""
    waits: str = ""
    """What it waits for, in words."""
    resting: bool = False
    """True if its state differed from that of the others. No world may include it until it reports otherwise."""
    terms: str = ""
    """JSON object of what all ranks of the run must have in common; empty if unknown."""
    certificate: SampleCertificate | None = None
    """The certificate of the whole run, once the trainer is finished."""
    waiting: Counted | None = None
    """The step whose all-reduce it had entered and not left when it reported. An estimate for a rank that is not
    active."""
    overdue: bool = False
    """True if it has waited in that all-reduce for much longer than a step takes."""
    step_s: Duration = 0.0
    """Median seconds of its recent steps; 0 before the first measurements."""
    paused: str = ""
    """The reason given to `run.paused`, while the script is inside of it."""
    paused_at: UnixSeconds = 0.0
    """Unix seconds on its own clock, for people."""
    located: Counted = 0
    """The `number` of the newest `job.locate` for which the agent saw the process run."""


class Fallen(Struct, frozen=True, omit_defaults=True):
    """A trainer that ended by itself after the halt of its world: its peers noticed before its exit."""

    generation: Generation
    """The generation for which it had to park."""
    local_rank: Counted
    exit: TrainerExit


class WorkerStatus(Struct, frozen=True, omit_defaults=True, gc=False):
    worker: WorkerId
    cluster: ClusterName
    job: JobName
    seq: Counted
    """Increases with each status of this incarnation."""
    phase: WorkerPhase
    generation: Generation = NO_GENERATION
    """The newest generation that the worker obeys."""
    slots: Slots = 1
    """Ranks that the worker can hold."""
    region: str = ""
    zone: str = ""
    node: str = ""
    address: str = "127.0.0.1"
    """The address at which ranks of other workers reach those of this worker."""
    pid: Counted = 0
    submitted_at: float = 0.0
    """When the job was submitted; 0 if unknown. Distinguishes a later job of the same name."""
    step: Counted | None = None
    checkpoints: Counted = 0
    """Number of checkpoints of scripts without the SDK in `generation`, reported or found at `launch.checkpoint_path`.
    Each is a good moment for a restart."""
    exits: tuple[TrainerExit, ...] = ()
    """Exits of trainers of `generation`."""
    fallen: tuple[Fallen, ...] = ()
    """Trainers that have fallen since the newest halt."""
    notice_s: Duration | None = None
    """Seconds until the node ends, if it has a notice."""
    trainers: tuple[TrainerStatus, ...] = ()
    """Live trainers, in the order of their local ranks."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest checkpoint of a trainer, with or without the SDK."""
    assigned: Generation = NO_GENERATION
    """The generation of the worker's newest assignment, which the master need not repeat."""


class WorkerHeartbeat(Struct, frozen=True, omit_defaults=True):
    """The heartbeat of a worker to its cluster-controller. It stays in the region."""

    status: WorkerStatus


class WorkerJoined(Struct, frozen=True):
    """A worker is warm and ready to take ranks."""

    status: WorkerStatus


class WorkerReady(Struct, frozen=True):
    """A worker has forked all its trainers of the generation, or its invited trainers are warm."""

    status: WorkerStatus


class WorkerParked(Struct, frozen=True):
    """No trainer of a worker takes part in an older generation."""

    status: WorkerStatus


class WorkerParking(Struct, frozen=True):
    """Trainers of a worker are alive and leave an older generation, but slowly.

    Repeated until they have parked."""

    status: WorkerStatus


class WorkerPosition(Struct, frozen=True):
    """The positions of a worker's trainers: in which step's all-reduce, in `run.paused`, and whether they run.

    Sent when a trainer has waited too long or is paused, and in answer to `job.locate`."""

    status: WorkerStatus


class WorkerSwitched(Struct, frozen=True):
    """The ranks of a worker switched to the generation, or completed their first step in it (without the SDK)."""

    status: WorkerStatus
    step: Counted


class WorkerExited(Struct, frozen=True):
    """A trainer of a worker has exited."""

    status: WorkerStatus
    exit: TrainerExit


class WorkerPeerLost(Struct, frozen=True, omit_defaults=True):
    """A trainer of a worker lost the connection to a peer, which may be dead."""

    status: WorkerStatus
    exit: TrainerExit | None = None
    """None if the trainer is alive and reported the loss."""


class WorkerLeft(Struct, frozen=True, omit_defaults=True):
    """A worker is gone for good and has left no trainer."""

    status: WorkerStatus
    why: str
    is_unfit: bool = False
    """True if the worker lacks the GPUs that the job needs, and never took a rank."""


class WorkerNoticed(Struct, frozen=True, omit_defaults=True):
    """A notice for a worker's node, from the worker or its cluster-controller."""

    worker: WorkerId
    job: JobName
    remaining_s: Duration
    source: str
    """One of `signal`, `metadata`, `node`, `pod`, `file`."""


class StopWorker(Struct, frozen=True):
    """Command: end the trainers and leave."""

    why: str
    grace_s: Duration = 5.0
