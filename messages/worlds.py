"""What the master tells the workers of a job, and what they tell of their training."""

from msgspec import Struct, field

from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.jobs import Launch, Scalar


class Member(Struct, frozen=True):
    """A worker in a world and the ranks it holds: `first_rank` … `first_rank + ranks − 1`."""

    worker: WorkerId
    cluster: ClusterName
    region: str
    zone: str
    address: str
    group_rank: int
    first_rank: Rank
    ranks: int


class StoreAddress(Struct, frozen=True):
    """Where the ranks of a generation meet."""

    host: str
    port: int
    prefix: str = ""


class Hyperparameters(Struct, frozen=True, omit_defaults=True):
    global_batch: int | None = None
    shares: tuple[int, ...] = ()
    """Samples of each rank in one step; they add up to the global batch."""
    learning_rate: float | None = None
    given: dict[str, Scalar] = field(default_factory=dict)
    """Whatever else the job gave."""


class Assignment(Struct, frozen=True, omit_defaults=True):
    """The world of a generation. Also kept in KV, so that whoever comes late reads the last one."""

    job: JobName
    generation: Generation
    world_size: int
    members: tuple[Member, ...]
    store: StoreAddress
    launch: Launch
    stop_grace_s: float
    why: str
    spares: tuple[WorkerId, ...] = ()
    hyperparameters: Hyperparameters = Hyperparameters()
    restart_count: int = 0
    """Failures of the script so far; preemptions do not count."""
    max_restarts: int = 0


class Halt(Struct, frozen=True):
    """Everything below the generation is dead: park and report."""

    job: JobName
    generation: Generation
    why: str
    stop_grace_s: float


class Release(Struct, frozen=True):
    """These workers are needed no longer and may go."""

    job: JobName
    workers: tuple[WorkerId, ...]
    why: str


class RankProgress(Struct, frozen=True, omit_defaults=True):
    """Steps a rank completed since its worker's last report, in one generation."""

    rank: Rank
    first_step: int
    last_step: int
    loss: float | None = None
    samples: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    """Unix seconds at the completion of the first and the last of these steps."""


class Progress(Struct, frozen=True):
    """At most one a second from each worker, and one more before it parks."""

    job: JobName
    worker: WorkerId
    generation: Generation
    ranks: tuple[RankProgress, ...]


class LogLines(Struct, frozen=True, omit_defaults=True):
    job: JobName
    rank: Rank
    generation: Generation
    worker: WorkerId
    lines: tuple[str, ...]
    first_line: int = 0
    """Counts the rank's lines within the generation: a gap shows what was dropped."""
    stderr: bool = False
