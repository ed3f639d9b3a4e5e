"""What a worker-agent knows of itself.

`fence` is the newest generation it has heard of, `generation` the newest it obeys. The latter follows only when no
trainer takes part in an older one any more: a status that shows a generation is proof that everything below it is dead.
Trainers whose scripts use the SDK live through that; all others are ended.
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
    """When its job was submitted; 0 if that is not known."""


@dataclass(frozen=True, slots=True)
class WorkerRules:
    heartbeat_s: float = 1.0
    orphan_s: float = 600.0
    """A worker that heard nothing for so long because the bus is away ends by itself."""
    stop_grace_s: float = 5.0
    """From SIGTERM to SIGKILL of a trainer, where neither the master nor a command says otherwise."""
    stop_repeat_s: float = 10.0
    """After the grace: a stop that was not confirmed is asked for again."""
    notice_margin_s: float = 1.0
    """What is left of a notice when the worker goes without having been released."""
    host_backoff_s: float = 1.0
    host_backoff_max_s: float = 30.0
    host_losses_max: int = 5
    host_steady_s: float = 60.0
    """A host that stayed warm for so long has made good for earlier losses."""
    repeat_s: float = 1.0
    """A trainer that does not show what it was told so long ago is told again."""
    unparked_s: float = 5.0
    """Trainers that are to end are given so long to park first: one that has not does not save. At most half the
    grace."""
    look_s: float = 0.1
    """Trainers that have not parked so long after a halt are looked at, and again and again: do they live?"""
    lease_s: float = 2.0
    """How long what trainers hear of the bus holds; said with every heartbeat."""
    attach_s: float = 180.0
    """An invited trainer that has not attached after so long is given up."""
    invite_backoff_s: float = 1.0
    invite_backoff_max_s: float = 30.0
    parked_grace_s: float = 0.2
    """From SIGTERM to SIGKILL of a released trainer that takes part in nothing any more."""


class HostPhase(StrEnum):
    ABSENT = "absent"
    WARMING = "warming"
    WARM = "warm"


class Standing(StrEnum):
    """What the obeyed generation made of this worker."""

    FREE = "free"
    """No world yet, or a world without it."""
    PARKED = "parked"
    """A halt: waits for the world of this generation."""
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Contact:
    """The bus, and the master behind it."""

    heard_at_s: float
    """When the master was last heard, or the bus lost."""
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
    """What became of the trainers of `generation`, and of those that ended outside of it."""

    forked: frozenset[Rank] = frozenset()
    """Ranks whose trainers of `generation` were forked or entered it, whatever became of them."""
    exits: tuple[TrainerExit, ...] = ()
    """Of `generation`; those that our own stop caused say nothing of the script and are left out."""
    fallen: tuple[Fallen, ...] = ()
    """Trainers that ended by themselves after the halt of `fence`."""
    astray: tuple[TrainerExit, ...] = ()
    """Exits of trainers that were in no living world; not reported yet."""


@dataclass(frozen=True, slots=True)
class Progress:
    step: int | None = None
    """The newest completed in `generation`."""
    checkpoints: int = 0
    """Checkpoints that scripts without the SDK wrote in `generation`, as far as reported or seen."""
    checkpoint: WrittenCheckpoint | None = None
    """The newest that a trainer has written, with or without the SDK."""
    switched: Generation = NO_GENERATION
    """The newest generation for which it was reported that training continues in it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How trainers end that have to."""

    grace_s: float
    """From SIGTERM to SIGKILL. As the master last said; before it has, as the rules do."""
    by_s: float | None = None
    """No world follows the halt of `fence`: all trainers are ended, at this time even if they have not parked."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Asked for and not yet confirmed."""

    grace_s: float
    asked_at_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What the kernel is asked about live trainers: do their processes run?"""

    due_s: float = 0.0
    """When trainers that were told to park are looked at next."""
    seen_at_s: float = 0.0
    """When they were last looked at."""
    locate: int = 0
    """The number of the newest `job.locate`."""
    is_located: bool = True
    """It was answered with what the kernel knows of the trainers."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Live trainers that are warmed ahead of a world that will take them."""

    world: Assignment | None = None
    """The running world for which they are to be warmed, until they are forked."""
    terms: str = ""
    """What they must have alike with the trainers of that world."""
    forked_at_s: float = 0.0
    due_s: float = 0.0
    """No earlier are they forked."""
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """The machine ends soon."""

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
    """The assignment of `fence`, remembered until older trainers are gone, or have entered it."""
    trainers: tuple[Trainer, ...] = ()
    """In the order of their local ranks."""
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
        """Its own place in the obeyed world."""
        return own_place(self.identity.worker, self.world)

    @property
    def planned(self) -> bool:
        """The next world is being prepared while the present one trains."""
        return self.pending is not None and self.pending.hot is not None and self.pending.hot.entry is Entry.PLANNED

    @property
    def ranks(self) -> tuple[Rank, ...]:
        member = self.member
        if member is None or self.standing is not Standing.MEMBER:
            return ()
        return tuple(Rank(member.first_rank + local) for local in range(member.ranks))

    def trainer(self, birth: Birth) -> Trainer | None:
        return next((trainer for trainer in self.trainers if trainer.birth == birth), None)

    def present_rank(self, trainer: Trainer) -> Rank:
        """In the obeyed world; outside of it, the last it had."""
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
    # Trainers that were told to end are nobody's to count on, whatever the master decides meanwhile.
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
