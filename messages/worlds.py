"""Messages of the master to the workers of a job, and their reports of progress and logs."""

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
    """A worker in a world and the ranks that it holds: `first_rank` … `first_rank + ranks − 1`."""

    worker: WorkerId
    cluster: ClusterName
    region: str
    zone: str
    address: str
    group_rank: Ranks
    first_rank: Rank
    ranks: Slots


class StoreAddress(Struct, frozen=True):
    """The store at which the ranks of a generation meet."""

    host: str
    port: Annotated[int, Meta(ge=0, le=65_535)]
    prefix: str = ""


class Hyperparameters(Struct, frozen=True, omit_defaults=True):
    """The job's hyperparameters in one world."""

    global_batch: Counted | None = None
    """Samples of all ranks in one step; None if the job does not set it as an integer."""
    shares: tuple[Counted, ...] = ()
    """Samples of each rank in one step. They add up to the global batch; empty without one."""
    learning_rate: float | None = None
    given: dict[str, Scalar] = field(default_factory=dict)
    """All other hyperparameters of the job."""


class Entry(StrEnum):
    """How live trainers enter a world."""

    PLANNED = "planned"
    """The previous world trains until all are ready; then all switch after the same step."""
    REPAIR = "repair"
    """The previous world is halted; training continues from the state of the survivors."""


class LiveWorld(Struct, frozen=True, omit_defaults=True):
    """What live trainers need to know about the previous world."""

    entry: Entry
    previous: tuple[Annotated[int, Meta(ge=-1, le=1_000_000)], ...]
    """For each rank, its rank in the previous world; −1 if it enters without the state."""
    leaving_workers: tuple[WorkerId, ...] = ()
    """Members of the previous world that are not in this one."""
    resume: Counted = 0
    """Repairs only: the step at which training continues."""
    source: Rank = Rank(0)
    """Repairs only: a rank that has the all-reduced gradient of the step before `resume`."""
    laggards: tuple[Rank, ...] = ()
    """Repairs only: surviving ranks that miss the all-reduced gradient of the step before `resume`."""
    held: tuple[tuple[Range, ...], ...] = ()
    """Repairs only: for each rank, the samples of step `resume` whose gradients it has."""


class Assignment(Struct, frozen=True, omit_defaults=True, dict=True):
    """The world of a generation. The master also stores it in KV, where workers read it that missed the message."""

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
    """Failures of the script so far, as in torchrun (`TORCHELASTIC_RESTART_COUNT`); preemptions do not count."""
    max_restarts: Counted = 0
    """Failures that the job survives; one more fails it (`TORCHELASTIC_MAX_RESTARTS`)."""
    restarts: Counted = 0
    """Earlier starts of the script in a whole world of new processes, after failures, preemptions and resizes alike.

    Live trainers that get new ranks keep the number with which they were started.
    """
    live: LiveWorld | None = None
    """None if all ranks are new processes. Otherwise live trainers get new ranks."""

    @cached_property
    def by_worker(self) -> dict[WorkerId, Member]:
        return {member.worker: member for member in self.members}

    @cached_property
    def by_cluster(self) -> Counter[ClusterName]:
        """Returns the number of members in each cluster."""
        return Counter(member.cluster for member in self.members)


class Invite(Struct, frozen=True):
    """Tells workers to start their trainers early. The trainers prepare outside of the world and wait to enter one."""

    job: JobName
    workers: tuple[WorkerId, ...]
    world: Assignment
    """The current world."""
    why: str
    terms: str = ""
    """JSON object of what new trainers must have in common with those of the world; empty if unknown."""


class Halt(Struct, frozen=True, omit_defaults=True):
    """Ends all worlds of lower generations. Workers stop or park their trainers and then report `parked`."""

    job: JobName
    generation: Generation
    """Generation of the next world. Workers ignore assignments of lower generations from now on."""
    why: str
    stop_grace_s: Duration
    """Seconds that trainers get to end."""
    ends: bool = False
    """True if no world follows. Live trainers then finish their loop body, save, and end within `stop_grace_s`."""


class Locate(Struct, frozen=True):
    """Requests the positions of trainers and whether they run, because ranks have waited long for a peer."""

    job: JobName
    generation: Generation
    number: Counted
    """Repeated in the answer, to distinguish it from an older answer."""


class EndStalled(Struct, frozen=True):
    """Tells workers to end these ranks and to record their Python stacks, because others waited too long for them."""

    job: JobName
    generation: Generation
    ranks: tuple[Rank, ...]
    why: str


class Release(Struct, frozen=True, omit_defaults=True):
    """Tells unneeded workers of a job to end their trainers, report `left` and exit."""

    job: JobName
    workers: tuple[WorkerId, ...]
    why: str
    is_last: bool = False
    """True if the job has ended or is paused without a world. Then trainers get their whole grace to save the state."""
    everybody: bool = False
    """True if the message is for all workers of the job; `workers` is then empty."""


JobCommand = Assignment | Invite | Halt | Locate | EndStalled | Release
"""Messages of the master to the workers of a job."""


class StepsCounted(Struct, frozen=True, omit_defaults=True):
    """Counts of steps of the whole run so far (SDK)."""

    nonfinite: Counted = 0
    """Steps in which a rank's loss or gradient was NaN or infinite."""
    skipped: Counted = 0
    """Steps that were not applied, because of a nonfinite value or by a gradient scaler."""


class RankProgress(Struct, frozen=True, omit_defaults=True):
    """Steps of a rank in one generation since its worker's last report."""

    rank: Rank
    first_step: Counted
    last_step: Counted
    loss: float | None = None
    """The newest loss; None if no step reported one."""
    samples: Counted = 0
    """Samples of the rank in these steps."""
    first_at: UnixSeconds = 0.0
    """Unix seconds when the first of these steps was completed."""
    last_at: UnixSeconds = 0.0
    """Unix seconds when the last of these steps was completed."""
    measured: StepsMeasured | None = None
    """Set for scripts with the SDK."""
    counted: StepsCounted | None = None
    """Set for scripts with the SDK."""
    nonfinite: bool = False
    """True if the newest loss is NaN or infinite; `loss` is then None."""


class Progress(Struct, frozen=True):
    """Progress of a worker's ranks in one generation.

    A worker sends it once a second, and once more when it parks: before the fact `parked` for scripts without the SDK,
    after it for live trainers.
    """

    job: JobName
    worker: WorkerId
    generation: Generation
    ranks: tuple[RankProgress, ...]


class GatheredProgress(Struct, frozen=True):
    """Reports of the workers of one job in one cluster, in the order in which their controller received them."""

    job: JobName
    cluster: ClusterName
    reports: tuple[Progress, ...]


class LogLines(Struct, frozen=True, omit_defaults=True):
    """Lines that a rank printed."""

    job: JobName
    rank: Rank
    generation: Generation
    worker: WorkerId
    lines: tuple[str, ...]
    first_line: Counted = 0
    """The number of the first line, counted by rank and generation. A gap shows dropped lines."""
    stderr: bool = False
    """True if the lines are of stderr, False for stdout."""
