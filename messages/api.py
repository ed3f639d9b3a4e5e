"""What the master's HTTP API answers."""

from typing import Annotated

from msgspec import Meta, Struct, field

from messages.events import JOB_ENDS
from messages.ids import NO_GENERATION, Generation, JobName, Rank, WorkerId
from messages.jobs import JobSpec, Scalar
from messages.measured import MeasuredProfile
from messages.workers import SampleCertificate, WrittenCheckpoint
from messages.worlds import RankProgress


class PausedRank(Struct, frozen=True):
    """A rank inside `run.paused`."""

    rank: Rank
    reason: str
    since: float
    """Unix seconds of its worker."""


class WorkerView(Struct, frozen=True, omit_defaults=True):
    worker: WorkerId
    cluster: str
    phase: str
    presence: str
    generation: Generation = NO_GENERATION
    ranks: tuple[Rank, ...] = ()
    step: int | None = None
    loss: float | None = None
    loss_nonfinite: bool = False
    """Its newest loss is NaN or infinite; `loss` is null then."""
    samples_per_s: float | None = None
    heard_s: float = 0.0
    pid: int = 0
    paused: tuple[PausedRank, ...] = ()
    """Its ranks that are inside `run.paused`."""


class JobView(Struct, frozen=True, omit_defaults=True):
    name: JobName
    phase: str
    why: str
    generation: Generation
    world_size: int
    wanted: int
    failures: int
    submitted_at: float
    """Unix seconds."""
    losses: int = 0
    """Workers that were lost and did not count as failures."""
    paused: bool = False
    """It has spent its budget, gives its machines back and waits for more."""
    step: int | None = None
    loss: float | None = None
    loss_nonfinite: bool = False
    """The loss of `step` is NaN or infinite; `loss` is null then."""
    nonfinite: int = 0
    """Steps so far in which some rank's loss or gradient was NaN or infinite (SDK)."""
    skipped: int = 0
    """Steps so far that were not applied, because their gradient was not finite (SDK)."""
    samples_per_s: float | None = None
    measured: MeasuredProfile | None = None
    """What its steps need, where its script tells it."""
    stop_grace_s: float | None = None
    """Once it was asked to stop: how long its trainers may take to reach the end of their loop body and save."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest that is known. Without the SDK it has neither step nor folder."""
    certificate: SampleCertificate | None = None
    """What it can prove of its samples, once it has finished."""
    outdated: int = 0
    """Workers that still run the code from before the last reload."""
    warning: str = ""
    """What its owner should know: a restarted script repeats steps."""
    workers: tuple[WorkerView, ...] = ()
    """The first of them: by rank, then those without one by name."""
    workers_total: int = 0
    spec: JobSpec | None = None


class WorkerPage(Struct, frozen=True, omit_defaults=True):
    """Workers of a job: by rank, then those without one by name."""

    workers: tuple[WorkerView, ...]
    next: int | None = None
    """Where the next page begins; None on the last."""


class JobList(Struct, frozen=True, omit_defaults=True):
    """Jobs, in the order of their names."""

    jobs: tuple[JobView, ...]
    unread: tuple[JobName, ...] = ()
    """There are records of these, but this master could not read them, or not yet: they may live."""
    next: str = ""
    """The job after which the next page begins; empty on the last."""


class ScaleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    workers: int


class StopRequest(Struct, frozen=True, forbid_unknown_fields=True):
    grace_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """From SIGTERM to SIGKILL of its trainers; by default twice the longest of its last steps, at least 30 s."""


class Health(Struct, frozen=True):
    ok: bool
    why: str
    jobs: int
    clusters: int
    dropped: dict[str, int]
    """Messages that were counted and dropped, by reason."""
    role: str = "leader"
    """Or `standby`, which knows of no jobs."""


class Version(Struct, frozen=True):
    version: str
    protocol: int
    epoch: int
    fleet: str = ""
    """Whose machines this master has; empty: none."""


class LogLine(Struct, frozen=True):
    """Of the stream of logs."""

    at: float
    """Unix seconds of the worker that sent it; lines sent together share it."""
    rank: Rank
    generation: Generation
    line: str
    stderr: bool = False


class EventLine(Struct, frozen=True):
    """Of the stream of events."""

    at: float
    scope: str
    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)
    caused_by: str = ""
    """The message that led to it: kind, sender and id; empty where none did."""

    @property
    def ends_job(self) -> bool:
        return self.kind in JOB_ENDS


class ProgressLine(Struct, frozen=True):
    """Of the stream of progress: what one worker reported."""

    at: float
    worker: WorkerId
    generation: Generation
    ranks: tuple[RankProgress, ...]


class GenerationLine(Struct, frozen=True):
    """Of the summary of progress: what one generation did."""

    generation: Generation
    first_step: int
    last_step: int
    samples: int
    first_at: float
    last_at: float


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a request was refused, and what to try next."""

    error: str
    hint: str = ""
    problems: tuple[str, ...] = ()
    leader: str | None = None
    """Set by a master that does not lead: where the API of the one that does is, or empty if that is not known."""
