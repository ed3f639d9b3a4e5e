"""Short names for long things, and a worker core that is driven event by event."""

from dataclasses import dataclass, field

from agents.worker import invariants
from agents.worker.decide import decide
from agents.worker.effects import ForkTrainers, TellFact, WorkerEffect
from agents.worker.events import (
    AssignmentHeard,
    HaltHeard,
    HostWarmed,
    ReleaseHeard,
    Ticked,
    TrainerExited,
    TrainerForked,
    WorkerEvent,
)
from agents.worker.state import WorkerIdentity, WorkerRules, WorkerState, new_worker
from messages.ids import ClusterName, Epoch, Generation, JobName, Rank, WorkerId
from messages.jobs import Launch
from messages.workers import TrainerExit
from messages.worlds import Assignment, Halt, Hyperparameters, Member, Release, StoreAddress

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
    )


def a_halt(generation: int, *, stop_grace_s: float = 5.0, job: JobName = JOB) -> Halt:
    return Halt(job=job, generation=Generation(generation), why="a test", stop_grace_s=stop_grace_s)


def a_release(*workers: WorkerId, job: JobName = JOB) -> Release:
    return Release(job=job, workers=workers or (OWN,), why="a test")


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
        """Time passes, and the loop wakes whenever the core asked to be woken."""
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

    def hears(self, message: Assignment | Halt | Release, epoch: int | None = 1) -> "Story":
        lease = None if epoch is None else Epoch(epoch)
        match message:
            case Assignment():
                return self.happens(AssignmentHeard(self.now_s, message, lease))
            case Halt():
                return self.happens(HaltHeard(self.now_s, message, lease))
            case Release():
                return self.happens(ReleaseHeard(self.now_s, message, lease))

    def forks(self) -> "Story":
        """The host answers what was asked of it last."""
        asked = [effect for effect in self.effects if isinstance(effect, ForkTrainers)][-1].assignment
        place = next(member for member in asked.members if member.worker == self.state.identity.worker)
        ranks = [Rank(place.first_rank + local) for local in range(place.ranks)]
        return self.happens(*(TrainerForked(self.now_s, asked.generation, rank, 1000 + rank) for rank in ranks))

    def exits(self, *exits: TrainerExit, generation: int | None = None) -> "Story":
        of = self.state.generation if generation is None else Generation(generation)
        return self.happens(*(TrainerExited(self.now_s, of, ended) for ended in exits))

    @property
    def facts(self) -> list[str]:
        """Told by the last step of the story."""
        return [effect.fact for effect in self.last if isinstance(effect, TellFact)]


def a_new_worker(*, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    story = Story(new_worker(an_identity(slots=slots), 100.0, rules))
    return story.happens(Ticked(100.0))


def a_warm_worker(*, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    return a_new_worker(slots=slots, rules=rules).happens(HostWarmed(100.0))


def a_training_worker(generation: int = 1, *, slots: int = 2, rules: WorkerRules | None = None) -> Story:
    return a_warm_worker(slots=slots, rules=rules).hears(an_assignment(generation, a_member(OWN, 0, slots))).forks()
