"""Trainers that are attached, driven at random but honestly: whatever comes in between, the worker gets there."""

import random
from dataclasses import dataclass, field

import pytest

from agents.worker.commands import Enter, Park
from agents.worker.effects import ForkTrainers, LookAtTrainers, StopTrainers, TellTrainer
from agents.worker.events import (
    AssignmentHeard,
    BusBack,
    BusLost,
    HaltHeard,
    HostLost,
    HostWarmed,
    InviteHeard,
    Ticked,
    TrainerAttached,
    TrainerDetached,
    TrainerExited,
    TrainerForked,
    TrainerSaid,
    TrainersSeen,
    TrainersStopped,
    WorkerEvent,
)
from agents.worker.state import HostPhase
from agents.worker.trainer import Birth
from messages.ids import NO_GENERATION, Epoch, Generation, Rank
from messages.workers import TrainerExit, TrainerStatus, WorkerPhase
from messages.worlds import Assignment
from tests.worker.builders import (
    OTHER,
    OWN,
    Story,
    a_halt,
    a_member,
    a_new_worker,
    a_plan,
    a_repair,
    an_assignment,
    an_invite,
)

EVENTS = 80
FIRST = Rank(0)
WORLDS = [
    (a_member(OWN, 0, 2),),
    (a_member(OTHER, 0, 1), a_member(OWN, 1, 2)),
    (a_member(OWN, 0, 2), a_member(OTHER, 2, 1)),
    (a_member(OTHER, 0, 3),),
]


@dataclass
class FakeTrainer:
    """A trainer that obeys commands at random times."""

    birth: Birth
    rank: Rank = FIRST
    generation: Generation = NO_GENERATION
    parked: Generation = NO_GENERATION
    enters: Enter | None = None
    attached: bool = False

    def status(self) -> TrainerStatus:
        return TrainerStatus(0, self.rank, self.generation, self.parked, active=self.generation > 0)

    def hear(self, word: object) -> None:
        match word:
            case Enter():
                self.enters = word
            case Park(generation):
                self.parked = max(self.parked, generation)
                if self.enters is not None and self.enters.world.generation < generation:
                    self.enters = None

    def obey(self) -> None:
        """Enters the assigned world, or parks if it has no rank there."""
        word, self.enters = self.enters, None
        if word is None or word.world.generation < self.parked:
            return
        if word.leaves:
            self.parked = word.world.generation
        else:
            self.rank, self.generation = word.rank, word.world.generation


@dataclass
class Chaos:
    """A worker core, fake trainers, a host that obeys and a master that changes its mind."""

    chance: random.Random
    story: Story = field(default_factory=a_new_worker)
    top: int = 0
    trainers: dict[Birth, FakeTrainer] = field(default_factory=dict)

    def happens(self, *events: WorkerEvent) -> None:
        for event in events:
            self.story.happens(event)
            for effect in list(self.story.last):
                match effect:
                    case ForkTrainers():
                        births = [trainer.birth for trainer in self.story.state.trainers]
                        self.trainers = {birth: FakeTrainer(birth) for birth in births}
                    case StopTrainers(generation):
                        self.trainers = {b: t for b, t in self.trainers.items() if b[0] > generation}
                        self.happens(TrainersStopped(self.story.now_s, generation))
                    case TellTrainer(generation, rank, word):
                        assert self.trainers[generation, rank].attached
                        self.trainers[generation, rank].hear(word)
                    case LookAtTrainers():
                        running = [birth for birth in self.trainers if self.chance.random() < 0.8]
                        self.happens(TrainersSeen(self.story.now_s, frozenset(running)))

    def passes(self, seconds: float) -> None:
        until_s = self.story.now_s + seconds
        while self.story.wake_at_s is not None and self.story.wake_at_s <= until_s:
            self.story.now_s = max(self.story.now_s, self.story.wake_at_s)
            self.happens(Ticked(self.story.now_s))
            assert self.story.state.left or (self.story.wake_at_s or 0.0) > self.story.now_s, self.story.why
        self.story.now_s = until_s

    def some_trainer_does_something(self) -> None:
        if not self.trainers:
            return
        trainer = self.chance.choice(list(self.trainers.values()))
        now_s = self.story.now_s
        if not trainer.attached:
            trainer.attached = True
            self.happens(TrainerForked(now_s, *trainer.birth, 7), TrainerAttached(now_s, *trainer.birth))
            self.happens(TrainerSaid(now_s, *trainer.birth, trainer.status()))
            return
        trainer.obey()
        self.happens(TrainerSaid(now_s, *trainer.birth, trainer.status()))

    def some_trainer_breaks(self) -> None:
        if not self.trainers:
            return
        trainer = self.chance.choice(list(self.trainers.values()))
        was_attached, trainer.attached = trainer.attached, False
        if was_attached:
            self.happens(TrainerDetached(self.story.now_s, *trainer.birth))
        if self.chance.random() < 0.3:
            self.trainers.pop(trainer.birth, None)
            ended = TrainerExit(rank=trainer.birth[1], signal="SIGKILL")
            self.happens(TrainerExited(self.story.now_s, trainer.birth[0], ended))

    def the_master_speaks(self) -> None:
        self.top += 1
        members = self.chance.choice(WORLDS)
        kind = self.chance.choice((a_plan, a_repair, a_plan, a_repair, an_assignment))
        now_s, epoch = self.story.now_s, Epoch(1)
        if kind is not a_plan:
            self.happens(HaltHeard(now_s, a_halt(self.top), epoch))
            self.passes(self.chance.choice((0.0, 0.001, 2.0)))
        if self.chance.random() < 0.8:
            self.assigns(kind(self.top, *members))

    def the_master_invites(self) -> None:
        self.happens(InviteHeard(self.story.now_s, an_invite(max(1, self.top)), Epoch(1)))

    def assigns(self, world: Assignment) -> None:
        self.happens(AssignmentHeard(self.story.now_s, world, Epoch(1)))

    def the_host_is_lost(self) -> None:
        if self.story.state.host.phase is HostPhase.ABSENT:
            return
        self.trainers = {}
        self.happens(HostLost(self.story.now_s, "killed"))
        self.passes(61.0)
        self.happens(HostWarmed(self.story.now_s))
        self.passes(61.0)

    def the_bus_is_away(self) -> None:
        self.happens(BusLost(self.story.now_s))
        self.passes(self.chance.uniform(0.0, 5.0))
        self.happens(BusBack(self.story.now_s))

    def settles(self) -> None:
        """Lets time pass without faults until all parts are done."""
        for _ in range(40):
            for trainer in list(self.trainers.values()):
                if self.trainers.get(trainer.birth) is trainer:
                    self.chance.random()
                    self._does_its_best(trainer)
            self.passes(1.1)

    def _does_its_best(self, trainer: FakeTrainer) -> None:
        now_s = self.story.now_s
        if not trainer.attached:
            trainer.attached = True
            self.happens(TrainerForked(now_s, *trainer.birth, 7), TrainerAttached(now_s, *trainer.birth))
        if self.trainers.get(trainer.birth) is trainer:
            trainer.obey()
            self.happens(TrainerSaid(now_s, *trainer.birth, trainer.status()))


@pytest.mark.parametrize("seed", range(150))
def test_after_any_disturbance_the_last_halt_and_the_world_after_it_are_obeyed(seed: int) -> None:
    chance = random.Random(seed)
    chaos = Chaos(chance)
    chaos.happens(HostWarmed(chaos.story.now_s))
    often = [chaos.some_trainer_does_something] * 8 + [chaos.the_master_speaks] * 3
    rarely = [chaos.some_trainer_breaks, chaos.the_master_invites, chaos.the_host_is_lost, chaos.the_bus_is_away]
    for _ in range(EVENTS):
        chance.choice(often + rarely)()
        chaos.passes(chance.choice((0.0, 0.01, 0.7)))

    halted = chaos.top + 1
    chaos.happens(HaltHeard(chaos.story.now_s, a_halt(halted), Epoch(1)))
    chaos.settles()
    state = chaos.story.state
    assert (state.phase, state.generation) == (WorkerPhase.PARKED, halted), chaos.story.why

    if len(state.trainers) < 2:
        chaos.happens(InviteHeard(chaos.story.now_s, an_invite(halted), Epoch(1)))
        chaos.passes(31.0)
    chaos.assigns(a_repair(halted, *WORLDS[1]))
    chaos.settles()
    state = chaos.story.state
    assert (state.phase, state.generation, state.outcomes.exits) == (WorkerPhase.READY, halted, ()), chaos.story.why
    assert state.progress.switched == halted
    assert {trainer.rank for trainer in chaos.trainers.values()} == {1, 2}
