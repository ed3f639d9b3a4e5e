"""State of the worker-agent's core.

`fence` is the newest generation that the agent has heard of, `generation` the newest that it obeys. The latter follows
only when no trainer takes part in an older one: a status with a generation proves that everything below it is dead.
Live trainers continue through that; all others are ended.
"""

from dataclasses import dataclass
from enum import StrEnum

from agents.worker.trainer import Birth, Trainer
from messages.ids import NO_EPOCH, NO_GENERATION, ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.workers import Fallen, TrainerExit, WorkerPhase, WorkerStatus, WrittenCheckpoint
from messages.worlds import Assignment, Entry, Member


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    worker: WorkerId
    cluster: ClusterName
    job: JobName
    slots: int = 1
    region: str = ""
    zone: str = ""
    node: str = ""
    address: str = "127.0.0.1"
    pid: int = 0
    submitted_at: float = 0.0
    """When the job was submitted, in Unix seconds; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class WorkerRules:
    heartbeat_s: float = 1.0
    orphan_s: float = 600.0
    """Seconds without the bus after which the worker ends by itself."""
    stop_grace_s: float = 5.0
    """Default seconds from SIGTERM to SIGKILL of a trainer, if no command gives another value."""
    stop_repeat_s: float = 10.0
    """Seconds after the grace until a stop without confirmation is repeated."""
    notice_margin_s: float = 1.0
    """Seconds before the end of a notice at which a worker leaves by itself."""
    host_backoff_s: float = 1.0
    host_backoff_max_s: float = 30.0
    host_losses_max: int = 5
    host_steady_s: float = 60.0
    """Seconds after which a warm host clears the count of earlier losses."""
    repeat_s: float = 1.0
    """Seconds until a command is repeated if the trainer's status does not show its effect."""
    unparked_s: float = 5.0
    """Seconds that trainers get to park before they are ended, at most half the grace. A trainer that has not parked
    does not save its state."""
    look_s: float = 0.1
    """Seconds after a halt, and between further looks, until trainers that have not parked are looked at."""
    lease_s: float = 2.0
    """Seconds for which a lease of the trainers is valid. Each heartbeat renews it."""
    attach_s: float = 180.0
    """Seconds after which an invited trainer that has not attached is abandoned."""
    invite_backoff_s: float = 1.0
    invite_backoff_max_s: float = 30.0
    parked_grace_s: float = 0.2
    """Seconds from SIGTERM to SIGKILL of a released trainer that is in no world."""


class HostPhase(StrEnum):
    ABSENT = "absent"
    WARMING = "warming"
    WARM = "warm"


class Standing(StrEnum):
    """The part of this worker in the obeyed generation."""

    FREE = "free"
    """No world yet, or a world without this worker."""
    PARKED = "parked"
    """Halted: waits for the world of this generation."""
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Contact:
    """The bus, and the master behind it."""

    heard_at_s: float
    """When the last message of the master arrived, or the bus was lost."""
    heartbeat_due_s: float
    connected: bool = True
    epoch: Epoch = NO_EPOCH
    seq: int = 0
    """The number of the last status that was sent."""


@dataclass(frozen=True, slots=True)
class HostState:
    start_due_s: float
    phase: HostPhase = HostPhase.ABSENT
    since_s: float = 0.0
    losses: int = 0
    why: str = ""
    """Why the last host was lost."""
    is_unfit: bool = False
    """The last host found that this worker cannot train."""
    was_warm: bool = False


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Results of the trainers of `generation`, and of those that ended outside of it."""

    forked: frozenset[Rank] = frozenset()
    """Ranks whose trainers were forked for `generation` or entered it, even if they have ended since."""
    exits: tuple[TrainerExit, ...] = ()
    """Exits in `generation`, without those that the agent's own stop caused."""
    fallen: tuple[Fallen, ...] = ()
    """Trainers that ended by themselves after the halt of `fence`."""
    astray: tuple[TrainerExit, ...] = ()
    """Exits of trainers that were in no live world, not reported yet."""


@dataclass(frozen=True, slots=True)
class Progress:
    step: int | None = None
    """The newest step completed in `generation`."""
    checkpoints: int = 0
    """Number of checkpoints of scripts without the SDK in `generation` that were reported or found."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest checkpoint of a trainer, with or without the SDK."""
    switched: Generation = NO_GENERATION
    """The newest generation for which the agent has reported that training continues."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How trainers are ended."""

    grace_s: float
    """Seconds from SIGTERM to SIGKILL: the master's last value, at first that of the rules."""
    by_s: float | None = None
    """Set if no world follows the halt of `fence`: at this time, trainers are ended even if they have not parked."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A requested stop without confirmation."""

    grace_s: float
    asked_at_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """Looks at live trainers: whether the kernel shows that their processes run."""

    due_s: float = 0.0
    """When trainers that must park are looked at next."""
    seen_at_s: float = 0.0
    """When trainers were last looked at."""
    locate: int = 0
    """The number of the newest `job.locate`."""
    is_located: bool = True
    """True once the trainers were looked at for that request."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Live trainers that warm up before they enter a world."""

    world: Assignment | None = None
    """The running world for which trainers must warm up; None once they are forked."""
    terms: str = ""
    """What they must have in common with the trainers of that world."""
    forked_at_s: float = 0.0
    due_s: float = 0.0
    """When they may be forked."""
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """The announced end of the machine."""

    deadline_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Leaving:
    why: str
    code: int
    grace_s: float
    is_unfit: bool = False


@dataclass(frozen=True, slots=True)
class WorkerState:
    identity: WorkerIdentity
    rules: WorkerRules
    contact: Contact
    host: HostState
    ending: Ending
    fence: Generation = NO_GENERATION
    generation: Generation = NO_GENERATION
    standing: Standing = Standing.FREE
    world: Assignment | None = None
    """The assignment of `generation`."""
    pending: Assignment | None = None
    """The assignment of `fence`, until older trainers are gone or have entered it."""
    trainers: tuple[Trainer, ...] = ()
    """Trainers in the order of their local ranks."""
    outcomes: Outcomes = Outcomes()
    progress: Progress = Progress()
    stop: Stop | None = None
    observation: Observation = Observation()
    invitation: Invitation = Invitation()
    notice: Notice | None = None
    leaving: Leaving | None = None
    left: bool = False

    @property
    def member(self) -> Member | None:
        """This worker's place in the obeyed world."""
        return own_place(self.identity.worker, self.world)

    @property
    def planned(self) -> bool:
        """True if the next world is being prepared while the current one trains."""
        return self.pending is not None and self.pending.live is not None and self.pending.live.entry is Entry.PLANNED

    @property
    def ranks(self) -> tuple[Rank, ...]:
        member = self.member
        if member is None or self.standing is not Standing.MEMBER:
            return ()
        return tuple(Rank(member.first_rank + local) for local in range(member.ranks))

    def trainer(self, birth: Birth) -> Trainer | None:
        return next((trainer for trainer in self.trainers if trainer.birth == birth), None)

    def current_rank(self, trainer: Trainer) -> Rank:
        """Returns the trainer's rank in the obeyed world; outside of it, its last rank."""
        ranks = self.ranks
        if trainer.local_rank < len(ranks):
            return ranks[trainer.local_rank]
        status = trainer.attached
        return status.rank if status is not None and status.generation else trainer.rank

    @property
    def phase(self) -> WorkerPhase:
        if self.leaving is not None:
            return WorkerPhase.LEAVING
        if self.trainers and self.fence > self.generation and not self.planned:
            return WorkerPhase.STOPPING
        match self.standing:
            case Standing.MEMBER:
                return self._member_phase()
            case Standing.PARKED:
                return WorkerPhase.PARKED if self.host.was_warm else WorkerPhase.WARMING
            case Standing.FREE:
                return WorkerPhase.IDLE if self.host.phase is HostPhase.WARM else WorkerPhase.WARMING

    def _member_phase(self) -> WorkerPhase:
        if {ended.rank for ended in self.outcomes.exits}.issuperset(self.ranks):
            return WorkerPhase.ENDED
        return WorkerPhase.READY if self.outcomes.forked.issuperset(self.ranks) else WorkerPhase.STARTING


def new_worker(identity: WorkerIdentity, at_s: float, rules: WorkerRules | None = None) -> WorkerState:
    rules = rules or WorkerRules()
    return WorkerState(
        identity=identity,
        rules=rules,
        contact=Contact(heard_at_s=at_s, heartbeat_due_s=at_s),
        host=HostState(start_due_s=at_s),
        ending=Ending(rules.stop_grace_s),
    )


def own_place(worker: WorkerId, world: Assignment | None) -> Member | None:
    return world.by_worker.get(worker) if world is not None else None


def status_of(state: WorkerState, at_s: float) -> WorkerStatus:
    identity = state.identity
    # The master must not plan with trainers that are being ended.
    is_ending = state.ending.by_s is not None and state.stop is not None
    return WorkerStatus(
        worker=identity.worker,
        cluster=identity.cluster,
        job=identity.job,
        seq=state.contact.seq,
        phase=state.phase,
        generation=state.generation,
        slots=identity.slots,
        region=identity.region,
        zone=identity.zone,
        node=identity.node,
        address=identity.address,
        pid=identity.pid,
        submitted_at=identity.submitted_at,
        step=state.progress.step,
        checkpoints=state.progress.checkpoints,
        exits=state.outcomes.exits,
        fallen=state.outcomes.fallen,
        notice_s=None if state.notice is None else max(0.0, state.notice.deadline_s - at_s),
        trainers=() if is_ending else tuple(t.attached for t in state.trainers if t.attached is not None),
        checkpoint=state.progress.checkpoint,
        assigned=max((world.generation for world in (state.world, state.pending) if world), default=NO_GENERATION),
    )
