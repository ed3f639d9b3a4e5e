"""Requests and answers of the master's HTTP API."""

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
    """Unix seconds on the worker's clock."""


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
    """True if the newest loss is NaN or infinite; `loss` is then null."""
    samples_per_s: float | None = None
    heard_s: float = 0.0
    pid: int = 0
    paused: tuple[PausedRank, ...] = ()
    """The worker's ranks inside `run.paused`."""


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
    """Lost workers, which do not count as failures."""
    paused: bool = False
    """True if the job has reached its budget, gives its machines back and waits for a larger one."""
    step: int | None = None
    loss: float | None = None
    loss_nonfinite: bool = False
    """True if the loss of `step` is NaN or infinite; `loss` is then null."""
    nonfinite: int = 0
    """Steps so far in which a rank's loss or gradient was NaN or infinite (SDK)."""
    skipped: int = 0
    """Steps so far whose gradient was not applied, because it was not finite (SDK)."""
    samples_per_s: float | None = None
    measured: MeasuredProfile | None = None
    """What the job's steps need, as measured (SDK)."""
    stop_grace_s: float | None = None
    """Seconds that trainers of a stopping job get to reach the end of their loop body and save."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest known checkpoint. Without the SDK it has neither step nor folder."""
    certificate: SampleCertificate | None = None
    """The certificate of a finished job's samples."""
    outdated: int = 0
    """Workers that still run the code from before the last reload."""
    warning: str = ""
    """A warning for the job's owner: a restarted script repeats steps."""
    workers: tuple[WorkerView, ...] = ()
    """The first workers: by rank, then those without a rank by name."""
    workers_total: int = 0
    spec: JobSpec | None = None


class WorkerPage(Struct, frozen=True, omit_defaults=True):
    """Workers of a job: by rank, then those without a rank by name."""

    workers: tuple[WorkerView, ...]
    next: int | None = None
    """Where the next page begins; None on the last page."""


class JobList(Struct, frozen=True, omit_defaults=True):
    """Jobs, in the order of their names."""

    jobs: tuple[JobView, ...]
    unread: tuple[JobName, ...] = ()
    """Jobs whose stored records are unread or unreadable. They may be running."""
    next: str = ""
    """The job after which the next page begins; empty on the last page."""


class ScaleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    workers: int


class StopRequest(Struct, frozen=True, forbid_unknown_fields=True):
    grace_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    """Seconds from SIGTERM to SIGKILL of trainers. Default: twice the longest recent step, at least 30 s."""


class Health(Struct, frozen=True):
    ok: bool
    why: str
    jobs: int
    clusters: int
    dropped: dict[str, int]
    """Number of dropped messages, by reason."""
    role: str = "leader"
    """`leader` or `standby`. A standby knows no jobs."""


class Version(Struct, frozen=True):
    version: str
    protocol: int
    epoch: int
    fleet: str = ""
    """The fleet that this master uses; empty if none."""


class LogLine(Struct, frozen=True):
    """A line of the stream of logs."""

    at: float
    """Unix seconds of the worker that sent the line; lines that are sent together share it."""
    rank: Rank
    generation: Generation
    line: str
    stderr: bool = False


class EventLine(Struct, frozen=True):
    """A line of the stream of events."""

    at: float
    scope: str
    kind: str
    text: str
    why: str = ""
    fields: dict[str, Scalar | None] = field(default_factory=dict)
    caused_by: str = ""
    """Kind, sender and id of the message that caused the event; empty if none did."""

    @property
    def ends_job(self) -> bool:
        return self.kind in JOB_ENDS


class ProgressLine(Struct, frozen=True):
    """A line of the stream of progress: a report of one worker."""

    at: float
    worker: WorkerId
    generation: Generation
    ranks: tuple[RankProgress, ...]


class GenerationLine(Struct, frozen=True):
    """A line of the summary of progress: the steps of one generation."""

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
    """Set by a standby: the URL of the leader's API, or empty if it is unknown."""
