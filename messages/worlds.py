"""What the master tells the workers of a job, and what they tell of their training."""

from collections import Counter
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct, field

from messages.ids import (
    ClusterName,
    Counted,
    Duration,
    Generation,
    JobName,
    Range,
    Rank,
    Ranks,
    Slots,
    UnixSeconds,
    WorkerId,
)
from messages.jobs import Launch, Scalar
from messages.measured import StepsMeasured


class Member(Struct, frozen=True, gc=False):
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


class Entry(StrEnum):
    """How trainers that live on come into a world."""

    PLANNED = "planned"
    """The world before it trains until all are ready; then all go over after the same step."""
    REPAIR = "repair"
    """The world before it is halted: they go on from what the survivors have."""


class HotWorld(Struct, frozen=True, omit_defaults=True):
    """What trainers that live on need to know of the world before this one."""

    entry: Entry
    previous: tuple[Annotated[int, Meta(ge=-1, le=1_000_000)], ...]
    """For each rank the one it held in the world before; −1 for one that enters without the state."""
    leavers: tuple[WorkerId, ...] = ()
    """Members of the world before that are not in this one."""
    resume: Counted = 0
    """After a halt: the step to be computed next."""
    source: Rank = Rank(0)
    """After a halt: a rank that has the sum of the step before `resume`."""
    laggards: tuple[Rank, ...] = ()
    """After a halt: ranks that miss that sum."""
    held: tuple[tuple[Range, ...], ...] = ()
    """After a halt: for each rank the samples of step `resume` whose gradients it has."""


class Assignment(Struct, frozen=True, omit_defaults=True, dict=True):
    """The world of a generation. Also kept in KV, so that whoever comes late reads the last one."""

    job: JobName
    generation: Generation
    world_size: Ranks
    members: tuple[Member, ...]
    store: StoreAddress
    launch: Launch
    stop_grace_s: Duration
    why: str
    hyperparameters: Hyperparameters = Hyperparameters()
    restart_count: Counted = 0
    """Failures of the script so far; preemptions do not count."""
    max_restarts: Counted = 0
    restarts: Counted = 0
    """Worlds before this one in which the script was started, whatever ended them."""
    hot: HotWorld | None = None
    """None: every rank is a new process. Else trainers that live on are re-ranked in place."""

    @cached_property
    def by_worker(self) -> dict[WorkerId, Member]:
        return {member.worker: member for member in self.members}

    @cached_property
    def by_cluster(self) -> Counter[ClusterName]:
        """Number of members."""
        return Counter(member.cluster for member in self.members)


class Invite(Struct, frozen=True):
    """These workers start their trainers ahead: they warm up outside the world and wait to be taken into it."""

    job: JobName
    workers: tuple[WorkerId, ...]
    world: Assignment
    """The one that runs now."""
    why: str
    terms: str = ""
    """What trainers must have alike with those that train, in their words; empty if they have not said."""


class Halt(Struct, frozen=True, omit_defaults=True):
    """Everything below the generation is dead: park and report."""

    job: JobName
    generation: Generation
    why: str
    stop_grace_s: Duration
    ends: bool = False
    """No world follows: trainers reach the end of their loop body, save, and end within the grace."""


class Locate(Struct, frozen=True):
    """Report where your trainers are and whether they run: others have waited for a rank of this world for long."""

    job: JobName
    generation: Generation
    number: Counted
    """Repeated in the answer, so that an older answer is not taken for this one's."""


class EndStalled(Struct, frozen=True):
    """End these ranks of this world: the others have waited for them too long. Their Python stacks are recorded."""

    job: JobName
    generation: Generation
    ranks: tuple[Rank, ...]
    why: str


class Release(Struct, frozen=True, omit_defaults=True):
    """These workers are needed no longer and may go."""

    job: JobName
    workers: tuple[WorkerId, ...]
    why: str
    is_last: bool = False
    """Nobody stays who has the state: trainers may take their grace to save it."""
    everybody: bool = False
    """All workers of the job, whether named or not."""


JobCommand = Assignment | Invite | Halt | Locate | EndStalled | Release
"""What the master tells all workers of a job."""


class StepsCounted(Struct, frozen=True, omit_defaults=True):
    """Steps of the whole run so far, as its script counts them (SDK)."""

    nonfinite: Counted = 0
    """Some rank's loss or gradient was NaN or infinite."""
    skipped: Counted = 0
    """Not applied for that reason, or by a gradient scaler."""


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
    measured: StepsMeasured | None = None
    """Of scripts that use the SDK."""
    counted: StepsCounted | None = None
    """Of scripts that use the SDK."""
    nonfinite: bool = False
    """The newest loss is NaN or infinite; `loss` is None then."""


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
