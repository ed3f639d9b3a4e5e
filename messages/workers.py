"""What a worker-agent says of itself.

Every fact carries the worker's whole status, and so does every heartbeat: a fact that is lost is learned from the next
heartbeat, and `seq` makes an older status teach nothing.
"""

from enum import StrEnum

from msgspec import Struct

from messages.ids import NO_GENERATION, ClusterName, Counted, Duration, Generation, JobName, Rank, Slots, WorkerId


class WorkerPhase(StrEnum):
    WARMING = "warming"
    """The host is importing torch; the worker cannot take ranks yet."""
    IDLE = "idle"
    """Warm, holds no rank and no trainer: free, or a spare."""
    STOPPING = "stopping"
    """Trainers of an older generation are being ended."""
    PARKED = "parked"
    """No trainer of a generation below `generation` is left."""
    STARTING = "starting"
    """Trainers of `generation` are being forked."""
    READY = "ready"
    """All trainers of `generation` were forked."""
    ENDED = "ended"
    """All trainers of `generation` have exited; `exits` says how."""
    LEAVING = "leaving"
    """Ends by itself; takes no more ranks."""


class TrainerExit(Struct, frozen=True, omit_defaults=True):
    rank: Rank
    code: int | None = None
    signal: str | None = None
    tail: tuple[str, ...] = ()
    """The last lines of its standard error; empty after a clean exit."""
    error: str | None = None
    """What the script wrote to TORCHELASTIC_ERROR_FILE."""
    peer_lost: bool = False
    """It failed because the connection to a peer broke, not by itself."""

    @property
    def clean(self) -> bool:
        return self.code == 0


class WorkerStatus(Struct, frozen=True, omit_defaults=True):
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
    step: Counted | None = None
    exits: tuple[TrainerExit, ...] = ()
    """Of `generation` only."""
    notice_s: Duration | None = None
    """Seconds until the node is taken, once a notice came."""


class WorkerHeartbeat(Struct, frozen=True, omit_defaults=True):
    """Stays in the region: the cluster-controller gathers it into the topology."""

    status: WorkerStatus
    load_1m: float = 0.0


class WorkerJoined(Struct, frozen=True):
    """Warm and ready to take ranks."""

    status: WorkerStatus


class WorkerReady(Struct, frozen=True):
    """Has forked all its trainers of the generation."""

    status: WorkerStatus


class WorkerParked(Struct, frozen=True):
    """Has no trainer of an older generation any more."""

    status: WorkerStatus


class WorkerSwitched(Struct, frozen=True):
    """Its ranks completed their first step in the generation (scripts that report progress)."""

    status: WorkerStatus
    step: Counted


class WorkerExited(Struct, frozen=True):
    """One of its trainers has exited."""

    status: WorkerStatus
    exit: TrainerExit


class WorkerPeerLost(Struct, frozen=True):
    """One of its trainers lost the connection to a peer: somebody may be dead."""

    status: WorkerStatus
    exit: TrainerExit


class WorkerLeft(Struct, frozen=True):
    """Gone for good, with no trainer left behind."""

    status: WorkerStatus
    why: str


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


class DumpWorker(Struct, frozen=True):
    """Command: answer with your status and what you are waiting for."""


class WorkerDump(Struct, frozen=True):
    status: WorkerStatus
    waiting_for: str
    counters: dict[str, int]
