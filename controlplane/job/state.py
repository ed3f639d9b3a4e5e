"""What the master knows of one job."""

from msgspec import Struct, field
from msgspec.structs import replace

from controlplane.job.workers import Worker, Workers
from messages.ids import NO_GENERATION, ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.jobs import JobSpec
from messages.records import Phase, Record
from messages.workers import TrainerExit, WorkerPhase, WrittenCheckpoint
from messages.worlds import StoreAddress

GATHER_S = 2.5
"""Seconds in which every cluster with a controller is heard by a master that has just begun to lead."""
UNKNOWN_COST_S = 3.0
"""Seconds that a restart is taken to cost by a master that has seen none of this job."""


class Cluster(Struct, frozen=True):
    """What the controller of a cluster last reported about this job."""

    incarnation: str
    heard_s: float
    keeps: int
    step: int = 0
    """The step that one of the workers there has completed, as it was last heard."""
    told_s: float | None = None
    """When it was last told how many workers to keep."""
    refusal: str = ""
    """Why it would not do what it was last told."""
    behind_s: float | None = None
    """Since when it has had fewer warm workers than its share, and no more than `brought`."""
    brought: int = 0
    cap: int | None = None
    """The most workers it is asked for, since it brought no more for too long."""


class Store(Struct, frozen=True):
    generation: Generation = NO_GENERATION
    """The newest generation that a store was asked for."""
    address: StoreAddress | None = None
    retry_s: float | None = None
    """When to ask again after the store could not be started."""
    error: str = ""


class Failure(Struct, frozen=True):
    """The first trainer of a generation that failed by itself, or the first that lost a peer."""

    worker: WorkerId
    exit: TrainerExit


class Unfit(Struct, frozen=True):
    """Workers that left because they have not the GPUs that the job asks for, since one last could train."""

    workers: int = 0
    why: str = ""
    """Of the newest."""


class Barred(Struct, frozen=True):
    """A worker whose trainers failed is not invited for a while."""

    failures: int
    until_s: float


class Wait(Struct, frozen=True):
    """Ranks have waited for long in the all-reduce of a step, and all workers are asked where theirs are."""

    generation: Generation
    step: int
    waiting: frozenset[Rank]
    """Those that have entered it."""
    since_s: float
    """When the last of them was heard to, or a rank that is missing was last paused."""
    asked_s: float
    """When the present round of questions began."""
    told_s: float
    """When its question was last published."""
    number: int = 0
    """Number of the round, repeated in its answers; 0 before anybody was asked."""
    is_judged: bool = False
    """The round is closed."""


class Start(Struct, frozen=True):
    """How the present world came up: what a restart costs is measured by it."""

    up_s: float | None = None
    """When it was last seen to have come further: it ran, its ranks met, it completed a first step."""
    has_step: bool = False
    parking_s: float = 0.0
    """Seconds that it took to end the world before."""
    cost_s: float = 0.0
    """Those, and the seconds from its decision to `up_s`."""
    cost_before_s: float = 0.0
    """The same of the world before."""


class DeadlineLeft(Struct, frozen=True):
    """What was left of a deadline when it was last looked at."""

    steps: int
    seconds: float
    at_s: float


class Want(Struct, frozen=True):
    """What the job wants of its allocator. Each newer one replaces the older."""

    number: int
    """From 1 in each term."""
    nodes: int
    """None while it is paused."""
    ended: str | None = None
    """Why it wants none any more."""
    spot_only: bool = False
    max_usd_total: float | None = None
    """In place of what its file says."""
    deadline: DeadlineLeft | None = None
    lost: frozenset[ClusterName] = frozenset()
    """Silent clusters in which it has no worker left: nodes there are of no more use."""


class Supply(Struct, frozen=True):
    """What the allocator was told, and what it answered."""

    want: Want | None = None
    """The newest."""
    awaits_placement: bool = False
    """The allocator has not listed the pools yet."""
    placement: dict[ClusterName, int] | None = None
    """Workers by cluster where an allocator decides; without one they are spread evenly."""
    shortage: str = ""
    """Why it cannot have all of them, and what a person can do about it."""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes that the allocator wants to be free, by cluster."""
    at_once: bool = False
    """Also if too few are left to train."""


class Storage(Struct, frozen=True):
    """How far the record is stored."""

    saved: Record | None = None
    saving: Record | None = None
    retry_s: float | None = None
    """When to try again after it could not be saved."""


class Round(Struct, frozen=True):
    """The present world, from its decision to the end of its trainers."""

    assigned_s: float | None = None
    """When it was decided."""
    published_s: float | None = None
    """When the newest halt or assignment was last published."""
    halted_s: float | None = None
    """When the halt of `record.generation` was first published."""
    prepared_s: float | None = None
    """When `record.prepared` was decided."""
    over_s: float | None = None
    """When trainers said that the last step is done and everybody has it."""
    share_taken_s: float = 0.0
    """When the last of those who have the state had it."""
    ranks_waiting: str = ""
    """Which ranks wait for which at the store."""
    store_lost: bool = False
    """Its store is away: a rank that failed for want of it did not fail by itself."""
    lost_member: bool = False
    """A member was lost since it was decided."""
    failure: Failure | None = None
    quit: Failure | None = None
    """A rank that ended with 0 before the last step: no failure if all do."""
    clean: frozenset[Rank] = frozenset()
    """Ranks that exited with 0."""


class ScriptRun(Struct, frozen=True):
    """What decides when a script without the SDK is restarted to grow."""

    start: Start = Start()
    checkpointed_s: float | None = None
    """When it was last heard to have written a checkpoint in the present world."""
    grows_at_once: bool = False
    """A person asked for more workers: those that come are admitted at once until all of them are there."""


class Pause(Struct, frozen=True):
    """What the next world waits for."""

    retry_s: float | None = None
    """No new world before: backoff after a failure."""
    waiting_since_s: float = 0.0
    begins_anew: bool = False
    """After a pause: its next world waits for those that are known to come, as the first did."""


class FailureLog(Struct, frozen=True):
    counted: Failure | None = None
    """The last that counted against what is allowed."""
    judged: Generation = NO_GENERATION
    """A world whose failure an earlier master has counted, when it closed the round."""
    joining: Failure | None = None
    """The last of a worker that came, or was to come, to others that train on without it."""
    unfit: Unfit = Unfit()
    barred: dict[WorkerId, Barred] = field(default_factory=dict)


class Contacts(Struct, frozen=True):
    """When workers were last told what is repeated until they obey."""

    invited_s: dict[WorkerId, float] = field(default_factory=dict)
    released_s: dict[WorkerId, float] = field(default_factory=dict)
    stale: dict[WorkerId, ClusterName] = field(default_factory=dict)
    """Workers with a tombstone that spoke again and are to be told to go."""


class Doubtful(Struct, frozen=True):
    """Messages of workers that were ignored because they cannot be true."""

    count: int = 0
    by_worker: dict[WorkerId, str] = field(default_factory=dict)
    """Why the first was, by the worker that it names."""


class Job(Struct, frozen=True):
    name: JobName
    spec: JobSpec
    record: Record
    """What is decided; published only once it is saved."""
    why: str = ""
    """What it does or waits for just now, for people; `record.why` is the reason of the phase."""
    submitted_s: float = 0.0
    """When it was submitted, on this process's monotonic clock."""
    is_submission_known: bool = True
    """False if the record was lost: then `submitted_at` is only when this master found the job."""
    storage: Storage = Storage()
    supply: Supply = Supply()
    workers: Workers = field(default_factory=Workers)
    gone: dict[WorkerId, str] = field(default_factory=dict)
    """Tombstones with their reasons: who is here never comes back."""
    clusters: dict[ClusterName, Cluster] = field(default_factory=dict)
    gathers_until_s: float | None = None
    """This master took the job over a moment ago: until then clusters keep what they keep, since not all were heard."""
    share_rounds: int = 0
    """How often every cluster was capped since all were last complete."""
    store: Store = Store()
    round: Round = Round()
    script: ScriptRun = ScriptRun()
    pause: Pause = Pause()
    failures: FailureLog = FailureLog()
    contacts: Contacts = Contacts()
    doubtful: Doubtful = Doubtful()
    wait: Wait | None = None
    due_s: float = 0.0
    """When time alone could change the last decision."""
    judges_from_s: float = 0.0
    """This process was late: before this moment it removes no worker for lateness."""
    late_since_s: float = 0.0
    """When the present spell of late decisions began."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest that any worker has reported, with or without the SDK."""


def new_job(spec: JobSpec, *, epoch: Epoch, at_s: float, submitted_at: float) -> Job:
    record = Record(
        phase=Phase.WAITING,
        why="submitted",
        generation=NO_GENERATION,
        wanted=spec.workers.fitting(spec.workers.max),
        submitted_at=submitted_at,
        epoch=epoch,
    )
    return Job(
        name=JobName(spec.name),
        spec=spec,
        record=record,
        why=record.why,
        submitted_s=at_s,
        pause=Pause(waiting_since_s=at_s),
    )


def adopted_job(spec: JobSpec, saved: Record, *, epoch: Epoch, at_s: float, age_s: float = 0.0) -> Job:
    """A job that another master left behind `age_s` after its submission, with its world running or half made.

    Its members count as heard just now, so that silence is measured by what this master hears, not by what it missed.
    """
    members = saved.assignment.members if saved.assignment is not None else ()
    invited = saved.prepared.members if saved.prepared is not None else ()
    ready = saved.phase is Phase.RUNNING
    workers = Workers(
        Worker(
            worker=member.worker,
            cluster=member.cluster,
            first_seen_s=at_s,
            heard_s=at_s,
            phase=WorkerPhase.READY if ready and member in members else WorkerPhase.STARTING,
            generation=saved.generation if ready and member in members else NO_GENERATION,
            slots=member.ranks,
            region=member.region,
            zone=member.zone,
            address=member.address,
        )
        for member in (*invited, *members)
        if not (saved.phase.ended or saved.rests)
    )
    return Job(
        name=JobName(spec.name),
        spec=spec,
        record=replace(saved, epoch=epoch),
        why=saved.why,
        submitted_s=at_s - age_s,
        storage=Storage(saved=saved),
        checkpoint=saved.checkpoint,
        workers=workers,
        gathers_until_s=at_s + GATHER_S,
        round=Round(store_lost=True, assigned_s=at_s, prepared_s=at_s),
        pause=Pause(waiting_since_s=at_s),
        script=ScriptRun(start=Start(up_s=at_s, cost_before_s=UNKNOWN_COST_S)),
        failures=FailureLog(judged=_judged(saved)),
    )


def _judged(saved: Record) -> Generation:
    """A round that is closed leaves the world behind it; its ranks may still report how they ended."""
    world, is_closed = saved.assignment, saved.phase in (Phase.WAITING, Phase.FORMING)
    return (
        world.generation if world is not None and is_closed and world.generation < saved.generation else NO_GENERATION
    )
