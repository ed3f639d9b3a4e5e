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
"""Seconds after a takeover within which the new leader hears every cluster that has a controller."""
UNKNOWN_COST_S = 3.0
"""Assumed seconds of a restart, for a master that has seen no restart of this job."""


class Cluster(Struct, frozen=True):
    """What the controller of a cluster last reported about this job."""

    incarnation: str
    heard_s: float
    keeps: int
    step: int = 0
    """The newest step that a worker of the cluster reported as completed."""
    sent_s: float | None = None
    """When the master last sent it the number of workers to keep."""
    refusal: str = ""
    """Why it refused the last command."""
    behind_s: float | None = None
    """Since when it has fewer warm workers than its share, and no more than `had_warm`."""
    had_warm: int = 0
    """Warm workers that it had at `behind_s`."""
    cap: int | None = None
    """The most workers that it is asked for, because no more became warm for too long."""


class Store(Struct, frozen=True):
    generation: Generation = NO_GENERATION
    """The newest generation for which a store was requested."""
    address: StoreAddress | None = None
    retry_s: float | None = None
    """When to request the store again after a failed start."""
    error: str = ""


class Failure(Struct, frozen=True):
    """The first trainer of a generation that failed by itself, or the first that lost a peer."""

    worker: WorkerId
    exit: TrainerExit


class Unfit(Struct, frozen=True):
    """Workers that left because they lack the GPUs of the job, counted since a worker could last train."""

    workers: int = 0
    why: str = ""
    """Reason of the newest of them."""


class Barred(Struct, frozen=True):
    """A worker that is not invited for a while because its trainers failed."""

    failures: int
    until_s: float


class Wait(Struct, frozen=True):
    """A long wait of ranks in the all-reduce of a step; all workers are asked in rounds where their ranks are."""

    generation: Generation
    step: int
    waiting: frozenset[Rank]
    """Ranks that have entered the all-reduce."""
    since_s: float
    """When the newest of them entered, or when a missing rank was last paused."""
    asked_s: float
    """When the current round of questions began."""
    sent_s: float
    """When the question of the round was last published."""
    number: int = 0
    """Number of the round, repeated in its answers; 0 before the first round."""
    is_judged: bool = False
    """The round is closed."""


class Start(Struct, frozen=True):
    """The start of the current world, which measures what a restart costs."""

    up_s: float | None = None
    """When its start last progressed: it runs, its ranks met, or it completed its first step."""
    has_step: bool = False
    parking_s: float = 0.0
    """Seconds that the end of the previous world took."""
    cost_s: float = 0.0
    """`parking_s` and the seconds from the decision of the world to `up_s`."""
    cost_before_s: float = 0.0
    """`cost_s` of the previous world."""


class DeadlineLeft(Struct, frozen=True):
    """Steps and seconds that were left of a deadline at `at_s`."""

    steps: int
    seconds: float
    at_s: float


class Want(Struct, frozen=True):
    """The job's request to its allocator. A newer request replaces an older one."""

    number: int
    """Counts from 1 in each term."""
    nodes: int
    """0 while the job is paused."""
    ended: str | None = None
    """Why the job has ended and wants no nodes."""
    spot_only: bool = False
    max_usd_total: float | None = None
    """Replaces the budget of the job file."""
    deadline: DeadlineLeft | None = None
    lost: frozenset[ClusterName] = frozenset()
    """Silent clusters without a worker of the job: their nodes are of no use."""


class Supply(Struct, frozen=True):
    """The request to the allocator, and its answer."""

    want: Want | None = None
    """The newest request."""
    awaits_placement: bool = False
    """The allocator has not listed the pools yet."""
    placement: dict[ClusterName, int] | None = None
    """Workers by cluster, decided by the allocator; None: they are spread evenly."""
    shortage: str = ""
    """Why the job cannot have all its workers, and what a person can do about it."""
    leaving: dict[ClusterName, frozenset[str]] = field(default_factory=dict)
    """Nodes that the allocator wants to remove, by cluster."""
    at_once: bool = False
    """The workers on `leaving` leave even if too few are left to train."""


class Storage(Struct, frozen=True):
    """The record as it is stored, and the one that is being stored."""

    saved: Record | None = None
    saving: Record | None = None
    retry_s: float | None = None
    """When to save again after a failure."""


class Round(Struct, frozen=True):
    """The current world, from its decision to the end of its trainers."""

    assigned_s: float | None = None
    """When the world was decided."""
    published_s: float | None = None
    """When the newest halt or assignment was last published."""
    halted_s: float | None = None
    """When the halt of `record.generation` was first published."""
    prepared_s: float | None = None
    """When `record.prepared` was decided."""
    over_s: float | None = None
    """When trainers reported that the last step is done and all ranks have it."""
    state_received_s: float = 0.0
    """When a rank last received the state."""
    ranks_waiting: str = ""
    """Which ranks wait for which at the store."""
    store_lost: bool = False
    """The store of the world is lost: a rank that fails without it has not failed by itself."""
    lost_member: bool = False
    """A member was lost since the world was decided."""
    failure: Failure | None = None
    quit: Failure | None = None
    """A rank that exited with 0 before the last step; no failure if all ranks do."""
    clean: frozenset[Rank] = frozenset()
    """Ranks that exited with 0."""


class ScriptRun(Struct, frozen=True):
    """What decides when a script without the SDK is restarted to grow."""

    start: Start = Start()
    checkpointed_s: float | None = None
    """When the script last reported a checkpoint in the current world."""
    grows_at_once: bool = False
    """A person asked for more workers: each new worker is admitted at once until all of them are there."""


class Pause(Struct, frozen=True):
    """What the next world waits for."""

    retry_s: float | None = None
    """When the backoff after a failure ends; no new world before."""
    waiting_since_s: float = 0.0
    starts_again: bool = False
    """The job was paused: its next world waits for the workers that are starting, like the first world."""


class FailureLog(Struct, frozen=True):
    counted: Failure | None = None
    """The last failure that counts against the allowed number."""
    judged: Generation = NO_GENERATION
    """A world whose failure an earlier master counted."""
    joining: Failure | None = None
    """The last failure of a joining worker, without which the others continue to train."""
    unfit: Unfit = Unfit()
    barred: dict[WorkerId, Barred] = field(default_factory=dict)


class Contacts(Struct, frozen=True):
    """When messages that are repeated until a worker obeys were last sent."""

    invited_s: dict[WorkerId, float] = field(default_factory=dict)
    released_s: dict[WorkerId, float] = field(default_factory=dict)
    stale: dict[WorkerId, ClusterName] = field(default_factory=dict)
    """Tombstoned workers that spoke again and must be removed again."""


class Doubtful(Struct, frozen=True):
    """Messages of workers that were ignored because they cannot be true."""

    count: int = 0
    by_worker: dict[WorkerId, str] = field(default_factory=dict)
    """Why the first such message was ignored, by the worker that it names."""


class Job(Struct, frozen=True):
    name: JobName
    spec: JobSpec
    record: Record
    """What is decided; published only after it is saved."""
    why: str = ""
    """What the job does or waits for now, for people; `record.why` is the reason of the phase."""
    submitted_s: float = 0.0
    """When the job was submitted, on this process's monotonic clock."""
    is_submission_known: bool = True
    """False if the record was lost: then `submitted_at` is when this master found the job."""
    storage: Storage = Storage()
    supply: Supply = Supply()
    workers: Workers = field(default_factory=Workers)
    gone: dict[WorkerId, str] = field(default_factory=dict)
    """Tombstones with their reasons: these workers never come back."""
    clusters: dict[ClusterName, Cluster] = field(default_factory=dict)
    gathers_until_s: float | None = None
    """After a takeover, until when clusters keep their number of workers, since not all clusters were heard."""
    share_rounds: int = 0
    """How often every cluster was capped since all clusters last had their share."""
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
    """Until when no worker is removed for lateness, because this process was late itself."""
    late_since_s: float = 0.0
    """When the current series of late decisions began."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest checkpoint that a worker reported, with or without the SDK."""


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
    """Takes over a job of another master, `age_s` after its submission, with its world running or half made.

    Its members count as heard now, so that only silence towards this master counts.
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
    """The last world if its round is closed; its ranks may still report how they ended."""
    world, is_closed = saved.assignment, saved.phase in (Phase.WAITING, Phase.FORMING)
    return (
        world.generation if world is not None and is_closed and world.generation < saved.generation else NO_GENERATION
    )
