"""What the master tells the workers of a job, and what they tell of their training."""

from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import ClusterName, Counted, Duration, Generation, JobName, Rank, Ranks, Slots, UnixSeconds, WorkerId
from messages.jobs import Launch, Scalar


class Member(Struct, frozen=True):
    """A worker in a world and the ranks it holds: `first_rank` … `first_rank + ranks − 1`."""

    worker: WorkerId
    cluster: ClusterName
    region: str
    zone: str
    address: str
    group_rank: Ranks
    first_rank: Rank
    ranks: Slots


class StoreAddress(Struct, frozen=True):
    """Where the ranks of a generation meet."""

    host: str
    port: Annotated[int, Meta(ge=0, le=65_535)]
    prefix: str = ""


class Hyperparameters(Struct, frozen=True, omit_defaults=True):
    global_batch: Counted | None = None
    shares: tuple[Counted, ...] = ()
    """Samples of each rank in one step; they add up to the global batch."""
    learning_rate: float | None = None
    given: dict[str, Scalar] = field(default_factory=dict)
    """Whatever else the job gave."""


class Assignment(Struct, frozen=True, omit_defaults=True):
    """The world of a generation. Also kept in KV, so that whoever comes late reads the last one."""

    job: JobName
    generation: Generation
    world_size: Ranks
    members: tuple[Member, ...]
    store: StoreAddress
    launch: Launch
    stop_grace_s: Duration
    why: str
    spares: tuple[WorkerId, ...] = ()
    hyperparameters: Hyperparameters = Hyperparameters()
    restart_count: Counted = 0
    """Failures of the script so far; preemptions do not count."""
    max_restarts: Counted = 0


class Halt(Struct, frozen=True):
    """Everything below the generation is dead: park and report."""

    job: JobName
    generation: Generation
    why: str
    stop_grace_s: Duration


class Release(Struct, frozen=True):
    """These workers are needed no longer and may go."""

    job: JobName
    workers: tuple[WorkerId, ...]
    why: str


class RankProgress(Struct, frozen=True, omit_defaults=True):
    """Steps a rank completed since its worker's last report, in one generation."""

    rank: Rank
    first_step: Counted
    last_step: Counted
    loss: float | None = None
    samples: Counted = 0
    first_at: UnixSeconds = 0.0
    last_at: UnixSeconds = 0.0
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
    first_line: Counted = 0
    """Counts the rank's lines within the generation: a gap shows what was dropped."""
    stderr: bool = False
