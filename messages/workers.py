"""What a worker-agent says of itself.

Every fact carries the worker's whole status, and so does every heartbeat: a fact that is lost is learned from the next
heartbeat, and `seq` makes an older status teach nothing.
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
    """Warm, holds no rank and no trainer: free, or a spare."""
    STOPPING = "stopping"
    """Trainers of an older generation are being ended."""
    PARKED = "parked"
    """No trainer takes part in a generation below `generation` any more."""
    STARTING = "starting"
    """Trainers of `generation` are being forked."""
    READY = "ready"
    """All trainers of `generation` were forked."""
    ENDED = "ended"
    """All trainers of `generation` have exited; `exits` says how."""
    LEAVING = "leaving"
    """Ends by itself; takes no more ranks."""


SENT_BY_OTHERS = ("SIGKILL", "SIGTERM")
"""Signals that end a process from outside; others, such as SIGSEGV, are its own doing."""


class TrainerExit(Struct, frozen=True, omit_defaults=True):
    rank: Rank
    code: int | None = None
    signal: str | None = None
    tail: tuple[str, ...] = ()
    """Its last traceback, or the last lines of its standard error; empty after a clean exit."""
    error: str | None = None
    """What the script wrote to TORCHELASTIC_ERROR_FILE."""
    peer_lost: bool = False
    """It failed because the connection to a peer broke, not by itself."""
    early: bool = False
    """It uses the SDK and ended before the last step, with 0."""
    stalled: str = ""
    """Why it was removed, if its peers had waited for it too long; `error` is its Python stack."""
    hint: str | None = None
    """What a person can do about it."""

    @property
    def by_itself(self) -> bool:
        """It failed, and neither a peer nor somebody who killed it explains that."""
        return bool(self.stalled) or not (self.clean or self.peer_lost or self.signal in SENT_BY_OTHERS)

    @property
    def clean(self) -> bool:
        return self.code == 0


class SampleCertificate(Struct, frozen=True, omit_defaults=True):
    """What a run of the SDK can prove of its samples when it is over."""

    steps: Counted
    samples: Counted
    lost: Counted = 0
    repeated: Counted = 0
    wrong: Counted = 0
    """Steps that took as many samples as they should, but others."""
    taken_again: Counted = 0
    """Steps that were lost with everybody's memory and taken again from a checkpoint."""
    nonfinite: Counted = 0
    """Steps in which some rank's loss or gradient was NaN or infinite."""
    skipped: Counted = 0
    """Steps whose gradient was not applied, because it was not finite."""
    says: str = ""
    """The same in words."""

    @property
    def holds(self) -> bool:
        return self.lost == self.repeated == self.wrong == 0


class WrittenCheckpoint(Struct, frozen=True):
    """A checkpoint that a trainer has written. Of one of a script without the SDK only the time is known."""

    step: Counted | None = None
    """The step that is computed next from it (SDK)."""
    folder: Annotated[str, Meta(max_length=4096)] = ""
    """The folder it is in (SDK)."""
    at: UnixSeconds = 0.0
    """When it was written (SDK), or when the worker-agent heard of it or saw it."""


class TrainerStatus(Struct, frozen=True, omit_defaults=True, gc=False):
    """A trainer whose script uses the SDK: it lives through changes of the world and tells what it has."""

    local_rank: Counted
    rank: Rank = Rank(0)
    generation: Generation = NO_GENERATION
    """Of the world it trains in; 0 before its first."""
    parked: Generation = NO_GENERATION
    """It is in no world below this one."""
    done: Counted = 0
    """Steps whose summed gradient it has; the step that it computes next."""
    held: tuple[Range, ...] = ()
    """Of step `done`: the samples whose gradients it has or is about to have."""
    active: bool = False
    """It has the whole state of the training and takes a share of each step."""
    finished: bool = False
    """All steps are done, and every rank has them."""
    broken: Generation = NO_GENERATION
    """The newest world in which it saw a collective fail, or which it could not build: somebody may be dead."""
    parking: Generation = NO_GENERATION
    """It was told to park for this generation and has not, but its agent has seen that it is alive."""
    waits: str = ""
    """What for, in words."""
    resting: bool = False
    """Its state was not that of the others: it is not to be taken into a world before it says so."""
    terms: str = ""
    """What all ranks of its run must have alike, in words."""
    certificate: SampleCertificate | None = None
    """Of the whole run, once it is finished."""
    waiting: Counted | None = None
    """The step whose all-reduce it had entered and not left when it reported. The step of a rank that is not active is
    a guess."""
    overdue: bool = False
    """It has waited there for much longer than its steps take."""
    step_s: Duration = 0.0
    """Median seconds of its recent steps; 0 before it has measured some."""
    paused: str = ""
    """The reason it gave to `run.paused`, while it is inside."""
    paused_at: UnixSeconds = 0.0
    """Unix seconds on its own clock, for people."""
    located: Counted = 0
    """The `number` of the newest `job.locate` for which its agent saw its process run."""


class Fallen(Struct, frozen=True, omit_defaults=True):
    """A trainer that ended by itself when its world had been halted already: others had noticed before its exit."""

    generation: Generation
    """For which it had to park."""
    local_rank: Counted
    exit: TrainerExit


class WorkerStatus(Struct, frozen=True, omit_defaults=True, gc=False):
    worker: WorkerId
    cluster: ClusterName
    job: JobName
    seq: Counted
    """Grows with every status this incarnation sends."""
    phase: WorkerPhase
    generation: Generation = NO_GENERATION
    """The newest generation it has heard of and obeys."""
    slots: Slots = 1
    """Ranks it can hold."""
    region: str = ""
    zone: str = ""
    node: str = ""
    address: str = "127.0.0.1"
    """Where its ranks are reached by those of other workers."""
    pid: Counted = 0
    submitted_at: float = 0.0
    """When its job was submitted, by the job's record; 0 if not known. Another job may have the same name later."""
    step: Counted | None = None
    checkpoints: Counted = 0
    """How many checkpoints its scripts without the SDK have reported in `generation`, or were seen at
    `launch.checkpoint_path`: each is a good moment for a restart."""
    exits: tuple[TrainerExit, ...] = ()
    """Of `generation` only."""
    fallen: tuple[Fallen, ...] = ()
    """Since the newest halt."""
    notice_s: Duration | None = None
    """Seconds until the node is taken, once a notice came."""
    trainers: tuple[TrainerStatus, ...] = ()
    """Those that use the SDK, in the order of their local ranks."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest that a trainer of its has written, with or without the SDK."""
    assigned: Generation = NO_GENERATION
    """Of the newest assignment that it has: it is not sent again to this worker."""


class WorkerHeartbeat(Struct, frozen=True, omit_defaults=True):
    """Stays in the region: the cluster-controller gathers it into the topology."""

    status: WorkerStatus


class WorkerJoined(Struct, frozen=True):
    """Warm and ready to take ranks."""

    status: WorkerStatus


class WorkerReady(Struct, frozen=True):
    """Has forked all its trainers of the generation, or has warmed those that it was invited to bring."""

    status: WorkerStatus


class WorkerParked(Struct, frozen=True):
    """Has no trainer any more that takes part in an older generation."""

    status: WorkerStatus


class WorkerParking(Struct, frozen=True):
    """Its trainers are alive and on their way out of an older generation, but take longer than they should.

    Told again and again until they have parked."""

    status: WorkerStatus


class WorkerPosition(Struct, frozen=True):
    """Where its trainers are: in the all-reduce of which step, in `run.paused`, and whether they run.

    Sent when one of them has waited too long or is paused, and in answer to `job.locate`."""

    status: WorkerStatus


class WorkerSwitched(Struct, frozen=True):
    """Its ranks went over to the generation, or completed their first step in it (scripts that report progress)."""

    status: WorkerStatus
    step: Counted


class WorkerExited(Struct, frozen=True):
    """One of its trainers has exited."""

    status: WorkerStatus
    exit: TrainerExit


class WorkerPeerLost(Struct, frozen=True, omit_defaults=True):
    """One of its trainers lost the connection to a peer: somebody may be dead."""

    status: WorkerStatus
    exit: TrainerExit | None = None
    """None if the trainer lives and said so."""


class WorkerLeft(Struct, frozen=True, omit_defaults=True):
    """Gone for good, with no trainer left behind."""

    status: WorkerStatus
    why: str
    is_unfit: bool = False
    """It has not the GPUs that the job asks for, and never took a rank."""


class WorkerNoticed(Struct, frozen=True, omit_defaults=True):
    """The node will be taken. Sent by the worker or by its cluster-controller, whoever sees it first."""

    worker: WorkerId
    job: JobName
    remaining_s: Duration
    source: str
    """`signal`, `metadata`, `node`, `pod`, `file`."""


class StopWorker(Struct, frozen=True):
    """Command: end the trainers and leave."""

    why: str
    grace_s: Duration = 5.0
