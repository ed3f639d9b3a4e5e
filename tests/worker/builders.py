"""Short names for long things, and a worker core that is driven event by event."""

from dataclasses import dataclass, field

from agents.worker import invariants
from agents.worker.commands import Lease, TrainerCommand
from agents.worker.decide import decide
from agents.worker.effects import ForkTrainers, TellFact, TellTrainer, WorkerEffect
from agents.worker.events import (
    AssignmentHeard,
    EndStalledHeard,
    HaltHeard,
    HostWarmed,
    InviteHeard,
    LocateHeard,
    ReleaseHeard,
    Ticked,
    TrainerAttached,
    TrainerExited,
    TrainerForked,
    TrainerSaid,
    WorkerEvent,
)
from agents.worker.state import WorkerIdentity, WorkerRules, WorkerState, new_worker
from agents.worker.trainer import Trainer
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.jobs import Launch
from messages.workers import TrainerExit, TrainerStatus
from messages.worlds import (
    Assignment,
    EndStalled,
    Entry,
    Halt,
    Hyperparameters,
    Invite,
    JobCommand,
    LiveWorld,
    Locate,
    Member,
    Release,
    StoreAddress,
)

JOB = JobName("story")
OWN = WorkerId("w1-0001")
OTHER = WorkerId("w2-0001")
LOCAL = ClusterName("local")


def an_identity(*, worker: WorkerId = OWN, slots: int = 2) -> WorkerIdentity:
    return WorkerIdentity(worker=worker, cluster=LOCAL, job=JOB, slots=slots, pid=4242)


def a_member(worker: WorkerId, first_rank: int, ranks: int = 1, *, group_rank: int = 0) -> Member:
    return Member(
        worker=worker,
        cluster=LOCAL,
        region="",
        zone="",
        address="127.0.0.1",
        group_rank=group_rank,
        first_rank=Rank(first_rank),
        ranks=ranks,
    )


def an_assignment(
    generation: int,
    *members: Member,
    launch: Launch | None = None,
    store: StoreAddress | None = None,
    stop_grace_s: float = 5.0,
    hyperparameters: Hyperparameters | None = None,
    job: JobName = JOB,
    live: LiveWorld | None = None,
) -> Assignment:
    chosen = members or (a_member(OWN, 0, 2),)
    return Assignment(
        job=job,
        generation=Generation(generation),
        world_size=sum(member.ranks for member in chosen),
        members=chosen,
        store=store or StoreAddress("127.0.0.1", 29500),
        launch=launch or Launch(script="train.py"),
        stop_grace_s=stop_grace_s,
        why="a test",
        hyperparameters=hyperparameters or Hyperparameters(),
        live=live,
    )


def a_plan(generation: int, *members: Member, leaving_workers: tuple[WorkerId, ...] = ()) -> Assignment:
    """A planned world, to which live trainers switch by themselves."""
    previous = tuple(range(sum(member.ranks for member in members)))
    return an_assignment(generation, *members, live=LiveWorld(Entry.PLANNED, previous, leaving_workers))


def a_repair(generation: int, *members: Member, resume: int = 7) -> Assignment:
    """A world after a halt, in which the survivors continue."""
    previous = tuple(range(sum(member.ranks for member in members)))
    return an_assignment(generation, *members, live=LiveWorld(Entry.REPAIR, previous, resume=resume))


def an_invite(generation: int, *workers: WorkerId, members: tuple[Member, ...] = ()) -> Invite:
    world = an_assignment(generation, *(members or (a_member(OTHER, 0, 3),)))
    return Invite(job=JOB, workers=workers or (OWN,), world=world, why="a test")


def a_halt(generation: int, *, stop_grace_s: float = 5.0, job: JobName = JOB, ends: bool = False) -> Halt:
    return Halt(job=job, generation=Generation(generation), why="a test", stop_grace_s=stop_grace_s, ends=ends)


def a_release(*workers: WorkerId, job: JobName = JOB, is_last: bool = False) -> Release:
    return Release(job=job, workers=workers or (OWN,), why="a test", is_last=is_last)


@dataclass
class Story:
    """A worker core and all it has asked for; every event is checked against the invariants."""

    state: WorkerState
    now_s: float = 100.0
    effects: list[WorkerEffect] = field(default_factory=list)
    last: list[WorkerEffect] = field(default_factory=list)
    why: str = ""
    wake_at_s: float | None = None

    def happens(self, *events: WorkerEvent) -> "Story":
        self.last = []
        for event in events:
            decision = decide(self.state, event)
            broken = invariants.check(self.state, decision.state)
            assert not broken, f"{event} broke: {broken}"
            self.state, self.why, self.wake_at_s = decision.state, decision.why, decision.wake_at_s
            self.last += decision.effects
        self.effects += self.last
        return self

    def after(self, seconds: float) -> "Story":
        """Lets time pass. The core wakes at each time that it has requested."""
        until_s = self.now_s + seconds
        woken: list[WorkerEffect] = []
        while self.wake_at_s is not None and self.wake_at_s <= until_s:
            assert self.wake_at_s >= self.now_s or not woken, f"asked to be woken in the past: {self.why}"
            self.now_s = max(self.now_s, self.wake_at_s)
            self.happens(Ticked(self.now_s))
            woken += self.last
        self.now_s = until_s
        self.last = woken
        return self

    def hears(self, message: JobCommand, epoch: int | None = 1) -> "Story":
        lease = None if epoch is None else Epoch(epoch)
        match message:
            case Assignment():
                return self.happens(AssignmentHeard(self.now_s, message, lease))
            case Halt():
                return self.happens(HaltHeard(self.now_s, message, lease))
            case Locate():
                return self.happens(LocateHeard(self.now_s, message, lease))
            case EndStalled():
                return self.happens(EndStalledHeard(self.now_s, message, lease))
            case Invite():
                return self.happens(InviteHeard(self.now_s, message, lease))
            case Release():
                return self.happens(ReleaseHeard(self.now_s, message, lease))

    def forks(self) -> "Story":
        """Reports that the host has forked the requested trainers."""
        assert any(isinstance(effect, ForkTrainers) for effect in self.effects)
        asked = [trainer for trainer in self.state.trainers if trainer.pid is None]
        return self.happens(*(TrainerForked(self.now_s, *trainer.birth, 1000 + trainer.rank) for trainer in asked))

    def attaches(self, *local_ranks: int) -> "Story":
        """Attaches these trainers; without arguments all."""
        chosen = self._trainers(local_ranks)
        return self.happens(*(TrainerAttached(self.now_s, *trainer.birth) for trainer in chosen))

    def reports_status(self, status: TrainerStatus, *local_ranks: int) -> "Story":
        """Reports a status of these trainers; without ranks of all."""
        return self.happens(*(TrainerSaid(self.now_s, *t.birth, status) for t in self._trainers(local_ranks)))

    def _trainers(self, local_ranks: tuple[int, ...]) -> list[Trainer]:
        return [t for t in self.state.trainers if not local_ranks or t.local_rank in local_ranks]

    @property
    def words(self) -> list[tuple[int, TrainerCommand]]:
        """Commands to trainers in the last step of the story, with their local ranks, without leases."""
        locally = {trainer.birth: trainer.local_rank for trainer in self.state.trainers}
        said = [effect for effect in self.last if isinstance(effect, TellTrainer)]
        return [(locally[s.generation, s.rank], s.command) for s in said if not isinstance(s.command, Lease)]

    def exits(self, *exits: TrainerExit, generation: int | None = None) -> "Story":
        of = self.state.generation if generation is None else Generation(generation)
        return self.happens(*(TrainerExited(self.now_s, of, ended) for ended in exits))

    @property
    def facts(self) -> list[str]:
        """Facts of the last step of the story."""
        return [effect.fact for effect in self.last if isinstance(effect, TellFact)]

    @property
    def sent(self) -> TellFact:
        """The last fact of the last step of the story."""
        return [effect for effect in self.last if isinstance(effect, TellFact)][-1]


def a_new_worker(*, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    story = Story(new_worker(an_identity(slots=slots), 100.0, rules))
    return story.happens(Ticked(100.0))


def a_warm_worker(*, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    return a_new_worker(slots=slots, rules=rules).happens(HostWarmed(100.0))


def a_training_worker(generation: int = 1, *, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    return a_warm_worker(slots=slots, rules=rules).hears(an_assignment(generation, a_member(OWN, 0, slots))).forks()


def in_world(generation: int, rank: int = 0, *, done: int = 7, active: bool = True, broken: int = 0) -> TrainerStatus:
    """A trainer that trains in this world."""
    return TrainerStatus(0, Rank(rank), Generation(generation), done=done, active=active, broken=Generation(broken))


def parked_at(generation: int, was_in: int, rank: int = 0, *, done: int = 7, active: bool = True) -> TrainerStatus:
    return TrainerStatus(0, Rank(rank), Generation(was_in), Generation(generation), done=done, active=active)


def a_live_worker(generation: int = 1, *, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    """A worker whose trainers use the SDK and train."""
    story = a_training_worker(generation, slots=slots, rules=rules).attaches()
    for local_rank in range(slots):
        story.reports_status(in_world(generation, local_rank), local_rank)
    return story


ELSEWHERE = a_member(OTHER, 0, 3)
WITH_US = (a_member(OTHER, 0, 1), a_member(OWN, 1, 2, group_rank=1))


def a_parked_worker(generation: int = 2) -> Story:
    return a_live_worker(1).hears(a_halt(generation)).reports_status(parked_at(generation, 1))


def an_invited_worker() -> Story:
    """A worker whose two warm trainers wait to enter the world of another worker."""
    return a_warm_worker().hears(an_assignment(1, ELSEWHERE)).hears(an_invite(1)).forks().attaches()
