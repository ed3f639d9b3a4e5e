"""Trainers that live through changes, as simply as can be: the truth that is held against what a job claims.

A sum is a number that nobody else has. What a trainer has is the row of sums it received, so two trainers have the same
state if and only if their rows are the same; and a step is whole if the samples that went into its sum are the batch.
When a world breaks while its ranks sum, some of them have the sum and others have not.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from agents.worker.commands import Enter, Locate, Park, TrainerCommand
from messages.ids import NO_GENERATION, Generation, Rank
from messages.workers import TrainerExit
from messages.worlds import Entry, HotWorld
from tests.simulation.clockwork import Broken, Clockwork
from tests.simulation.hot_worlds import BATCH, HotTrainer, Samples, Sums, World, counted_of, dealt, missing_of

COMPUTE_S = 0.1
SUM_S = 0.02
STALL_S = 0.5
CHECKPOINT_EVERY = 5


@dataclass
class HotTraining:
    clockwork: Clockwork
    steps: int
    serves: Callable[[int], bool]
    """Whether the store at this port is there."""
    trainers: list[HotTrainer] = field(default_factory=list)
    worlds: dict[Generation, World] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    """The sum of each step that everybody has."""
    checkpoint_sums: Sums = ()
    failures: int = 0
    steps_taken: int = 0
    over: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    """What came about, by kind."""
    at_switch: Callable[[], None] | None = None
    """A fault that waits for trainers to be on the point of going over."""

    @property
    def alive(self) -> list[HotTrainer]:
        return [trainer for trainer in self.trainers if trainer.alive]

    @property
    def checkpoint(self) -> int:
        return self.steps if self.over else len(self.checkpoint_sums)

    # What agents and faults do to a trainer.

    def hear(self, trainer: HotTrainer, word: TrainerCommand) -> None:
        if not trainer.alive:
            return
        if trainer.silent:
            trainer.unheard.append(word)
            return
        match word:
            case Enter():
                self._on_enter(trainer, word)
            case Park(generation):
                trainer.halted = max(trainer.halted, generation)
                self.clockwork.after(self.clockwork.chance.uniform(0.0005, 0.003), partial(self._park, trainer))
            case Locate():
                world = trainer.world
                if world is not None and trainer.trains and not trainer.busy and (world.summing or not world.runs):
                    trainer.waiting = len(trainer.sums)
                trainer.report(again=True)
            case _:
                pass

    def end(self, trainer: HotTrainer) -> None:
        if trainer.alive:
            trainer.alive = False
            self._disturb(trainer)

    def fail(self, trainer: HotTrainer) -> None:
        if trainer.alive:
            self.failures += 1
            self.end(trainer)
            trainer.exited(TrainerExit(trainer.birth[1], code=1, tail=("ValueError",)))

    def abort(self, trainer: HotTrainer, why: str, stall_s: float) -> None:
        """The truth that a claimed stall is held against."""
        if not trainer.alive:
            return
        if trainer.busy_since_s is None or self.clockwork.now_s - trainer.busy_since_s < stall_s:
            raise Broken(f"{trainer.worker} was ended as stalled, but it was not: {why}")
        self.seen["stalled ranks removed"] += 1
        self.failures += 1
        self.end(trainer)
        trainer.exited(TrainerExit(trainer.birth[1], signal="SIGKILL", stalled=why))

    def occupy(self, trainer: HotTrainer, for_s: float) -> None:
        """Unless it is in an all-reduce."""
        if not trainer.busy and trainer.waiting is None:
            trainer.busy_since_s = self.clockwork.now_s
            self.clockwork.after(for_s, partial(self._come_back, trainer))

    def _come_back(self, trainer: HotTrainer) -> None:
        trainer.busy_since_s = None
        if not trainer.alive:
            return
        world = trainer.world
        self.seen["slow ranks waited for"] += world is not None and not world.dead and trainer.trains
        if world is not None and world.dead:
            self._fall_out(trainer, world)
        self._take_up(trainer)

    def silence(self, trainer: HotTrainer, for_s: float) -> None:
        trainer.silent = trainer.stopped = True
        self.clockwork.after(for_s, partial(self._wake, trainer))

    def slow_down(self, trainer: HotTrainer, for_s: float) -> None:
        trainer.silent = True
        self.clockwork.after(for_s, partial(self._wake, trainer))
        self.clockwork.after(for_s + 0.5, lambda: self.seen.update({"slow trainers kept": trainer.alive}))

    def _wake(self, trainer: HotTrainer) -> None:
        trainer.silent = trainer.stopped = False
        words, trainer.unheard = trainer.unheard, []
        for word in words:
            self.hear(trainer, word)

    # Into a world.

    def _on_enter(self, trainer: HotTrainer, enter: Enter) -> None:
        generation = enter.world.generation
        known = trainer.next.world.generation if trainer.next is not None else NO_GENERATION
        if generation <= max(known, trainer.generation) or generation < trainer.halted:
            return
        trainer.next = enter
        world = self.worlds.setdefault(generation, World(enter.world))
        if world.assignment != enter.world:
            raise Broken(f"generation {generation} is two worlds: {world.assignment} and {enter.world}")
        if not enter.leaves:
            other = world.told.setdefault(enter.rank, trainer)
            if other is not trainer:
                raise Broken(f"rank {enter.rank} of generation {generation}: {other.worker} and {trainer.worker}")
            if len(world.told) == world.assignment.world_size:
                self.clockwork.after(self.clockwork.chance.uniform(0.005, 0.05), partial(self._build, world))
        self._take_up(trainer)

    def _take_up(self, trainer: HotTrainer) -> None:
        """Who trains goes over to a planned world in band, and only so; to any other when its own has broken."""
        enter = trainer.next
        if enter is None or enter.leaves or not trainer.alive or trainer.trains or trainer.busy:
            return
        world = self.worlds[enter.world.generation]
        if world.generation <= trainer.generation or world.generation < trainer.halted:
            return
        if world.hot is not None and world.hot.entry is Entry.PLANNED and world.hot.previous[enter.rank] >= 0:
            return
        self._enter(trainer, world, enter.rank)
        hot = world.hot
        trainer.active = hot is not None and hot.previous[enter.rank] >= 0
        trainer.heard = 0
        kept: Samples = frozenset()
        if trainer.active and hot is not None and len(trainer.sums) == hot.resume:
            kept = counted_of(hot, enter.rank, trainer.held) | missing_of(hot)[enter.rank]
        trainer.held = kept
        if len(trainer.sums) >= self.steps:
            trainer.held = frozenset()
        trainer.report()
        self._go(world)

    def _enter(self, trainer: HotTrainer, world: World, rank: Rank) -> None:
        trainer.world, trainer.rank = world, rank
        world.inside[rank] = trainer

    def _build(self, world: World) -> None:
        there = all(t.alive and t.halted <= world.generation for t in world.told.values())
        if there and self.serves(world.assignment.store.port):
            world.is_built = True
            self._go(world)
        elif world.hot is None or world.hot.entry is Entry.REPAIR:
            self.clockwork.after(1.0, partial(self._break, world))

    def _go(self, world: World) -> None:
        if world.runs or world.dead or not world.is_built:
            return
        if not world.is_full:
            self.clockwork.after(STALL_S, partial(self._miss_somebody, world))
            return
        world.runs = True
        if any(not trainer.trains for trainer in world.inside.values()):
            self._break(world)
            return
        delay_s = self.clockwork.chance.uniform(0.005, 0.02) if world.hot is not None else 0.2
        self.clockwork.after(delay_s, partial(self._begin, world))

    def _miss_somebody(self, world: World) -> None:
        """Those that have come into a world wait there for the rest, who may be busy."""
        if not world.dead and not world.is_full:
            for trainer in world.members:
                if trainer.trains and trainer.active and not trainer.busy:
                    trainer.waits()

    def _begin(self, world: World) -> None:
        if world.dead:
            return
        hot = world.hot
        for trainer in world.members:
            trainer.waits(overdue=False)
        if hot is None:
            self._start(world)
        elif hot.entry is Entry.REPAIR:
            self.seen["repairs"] += 1
            self._hand_on(world, hot)
        self._compute(world)

    def _start(self, world: World) -> None:
        """From the checkpoint: what was done after it is done again."""
        self.seen["starts"] += 1
        self.seen["starts after the end"] += self.over
        self.over = False
        self.committed = {step: made for step, made in self.committed.items() if step < len(self.checkpoint_sums)}
        for trainer in world.members:
            trainer.active, trainer.sums = True, self.checkpoint_sums
        self._promise(world, world.members)
        for trainer in world.members:
            trainer.report()

    def _hand_on(self, world: World, hot: HotWorld) -> None:
        source = world.inside[hot.source]
        for rank in hot.laggards:
            laggard = world.inside[rank]
            if laggard.sums != source.sums[:-1]:
                raise Broken(f"{laggard.worker} misses more than the last sum of {source.worker}")
            self.seen["laggards"] += 1
            laggard.sums = source.sums
            laggard.held = missing_of(hot)[rank] if len(laggard.sums) < self.steps else frozenset()

    # Steps.

    def _compute(self, world: World) -> None:
        self.clockwork.after(COMPUTE_S, partial(self._sum, world))

    def _sum(self, world: World) -> None:
        if world.dead:
            return
        world.summing = True
        if self.at_switch is not None and self._agreed_next(world) is not None:
            fault, self.at_switch = self.at_switch, None
            self.clockwork.after(SUM_S / 2, fault)
        self.clockwork.after(SUM_S, partial(self._complete, world, 0.0))

    def _complete(self, world: World, waited_s: float) -> None:
        if world.dead:
            return
        if any(trainer.silent or trainer.busy for trainer in world.members):
            if waited_s >= STALL_S:
                for trainer in world.members:
                    if not trainer.busy and not trainer.silent:
                        trainer.waits()
            self.clockwork.after(0.1, partial(self._complete, world, waited_s + 0.1))
            return
        world.summing = False
        for trainer in world.members:
            trainer.waiting, trainer.overdue = None, False
        self._receive(world, list(world.members))
        if not world.dead and not world.closed:
            self._compute(world)

    def _receive(self, world: World, receivers: list[HotTrainer]) -> None:
        """The sum of the present step comes to these."""
        able = [trainer for trainer in world.inside.values() if trainer.active and trainer.world is world]
        rows = {trainer.sums for trainer in able}
        if len(rows) != 1:
            raise Broken(f"generation {world.generation} adds gradients of different states: {sorted(map(len, rows))}")
        row = rows.pop()
        if len(row) >= self.steps:
            self._close(world, receivers)
            return
        self._check_whole(world, able, len(row))
        self._commit(row)
        after = (*row, self.steps_taken)
        following = self._agreed_next(world)
        for trainer in receivers:
            trainer.heard += not trainer.active
            if trainer.active or trainer.heard > 1:
                self.seen["joined"] += not trainer.active
                trainer.active, trainer.sums = True, after
            trainer.held = frozenset()
        if following is not None:
            self._switch(world, following, receivers)
        self._promise(world, [t for t in receivers if t.world is world and t.trains])
        for trainer in receivers:
            trainer.report()

    def _check_whole(self, world: World, able: list[HotTrainer], step: int) -> None:
        count = Counter(sample for trainer in able for sample in trainer.held)
        lost = [sample for sample in range(BATCH) if not count[sample]]
        repeated = [sample for sample, times in count.items() if times > 1]
        if lost or repeated:
            raise Broken(
                f"step {step} of generation {world.generation}: {len(lost)} samples lost, {len(repeated)} repeated"
            )

    def _commit(self, row: Sums) -> None:
        """Who adds to the next step has this one, and so have all."""
        self.steps_taken += 1
        for step, made in enumerate(row):
            if self.committed.setdefault(step, made) != made:
                raise Broken(f"step {step} was committed twice")
        if row and len(row) % CHECKPOINT_EVERY == 0:
            self.checkpoint_sums = row

    def _promise(self, world: World, trainers: list[HotTrainer]) -> None:
        able = sorted(rank for rank, trainer in world.inside.items() if trainer.active and trainer.world is world)
        whole = frozenset(range(BATCH))
        parts = dealt(whole, able) if able else {}
        for trainer in trainers:
            done = len(trainer.sums) >= self.steps
            trainer.held = frozenset() if done else parts.get(trainer.rank, frozenset())

    def _agreed_next(self, world: World) -> World | None:
        """The planned world that everybody is ready for."""
        nexts = {trainer.next.world.generation if trainer.next else NO_GENERATION for trainer in world.members}
        generation = nexts.pop()
        if nexts or generation <= world.generation:
            return None
        following = self.worlds[generation]
        ready = following.is_built or all(t.next is not None and t.next.leaves for t in world.members)
        planned = following.hot is not None and following.hot.entry is Entry.PLANNED
        return following if ready and planned and not following.dead else None

    def _switch(self, world: World, following: World, receivers: list[HotTrainer]) -> None:
        self.seen["switches"] += 1
        for trainer in receivers:
            enter = trainer.next
            assert enter is not None
            if trainer.halted > world.generation:
                continue
            if enter.leaves:
                trainer.active, trainer.parked = False, following.generation
            else:
                self._enter(trainer, following, enter.rank)
        world.dead = True
        gone_over = [trainer for trainer in receivers if trainer.world is following]
        self._promise_all(following, gone_over)
        self._go(following)

    def _promise_all(self, world: World, trainers: list[HotTrainer]) -> None:
        """By who is active in the world before: those that have the last sum know it of each other."""
        assert world.hot is not None
        able = [Rank(rank) for rank, previous in enumerate(world.hot.previous) if previous >= 0]
        parts = dealt(frozenset(range(BATCH)), able)
        for trainer in trainers:
            done = len(trainer.sums) >= self.steps
            trainer.held = frozenset() if done else parts.get(trainer.rank, frozenset())

    def _close(self, world: World, receivers: list[HotTrainer]) -> None:
        """Everybody has the last step."""
        self.over = world.closed = True
        for trainer in receivers:
            trainer.finished = True
            trainer.held = frozenset()
            trainer.report()
            self.clockwork.after(self.clockwork.chance.uniform(0.01, 0.3), partial(self._exit, trainer))

    def _exit(self, trainer: HotTrainer) -> None:
        if trainer.alive:
            trainer.alive = False
            trainer.exited(TrainerExit(trainer.birth[1], code=0))

    # Out of a world.

    def _park(self, trainer: HotTrainer) -> None:
        if not trainer.alive or trainer.silent:
            return
        disturbs = trainer.trains and trainer.halted > trainer.generation
        if disturbs:
            self._disturb(trainer)
        trainer.parked = max(trainer.parked, trainer.halted)
        trainer.waits(overdue=False)
        self._take_up(trainer)

    def _disturb(self, culprit: HotTrainer) -> None:
        """Its connections break, in its own world and in one that waits for it."""
        for world in self._worlds_of(culprit):
            self._break(world)

    def _worlds_of(self, trainer: HotTrainer) -> Iterator[World]:
        for world in list(self.worlds.values()):
            named = trainer in world.told.values() or trainer in world.inside.values()
            if named and not world.dead and (trainer.alive or trainer.world is world or world.inside):
                yield world

    def _break(self, world: World) -> None:
        if world.dead:
            return
        world.dead = True
        if world.summing:
            world.summing = False
            able = [trainer for trainer in world.members if trainer.alive and not trainer.silent]
            lucky = [trainer for trainer in able if self.clockwork.chance.random() < 0.5]
            if any(trainer.busy for trainer in world.members):
                lucky = []  # nobody can have a sum that not all have entered
            if lucky:
                self.seen["sums that only some received"] += len(lucky) < len(able)
                self._receive(world, lucky)
        for trainer in world.members:
            delay_s = self.clockwork.chance.uniform(0.002, 0.05)
            self.clockwork.after(delay_s, partial(self._fall_out, trainer, world))

    def _fall_out(self, trainer: HotTrainer, world: World) -> None:
        if not trainer.alive or trainer.silent or trainer.world is not world or not trainer.trains or trainer.finished:
            return
        if trainer.busy and trainer.halted <= world.generation:
            return
        if trainer.halted > world.generation:
            trainer.parked = max(trainer.parked, trainer.halted)
        else:
            trainer.broken = max(trainer.broken, world.generation)
            trainer.parked = Generation(max(trainer.parked, world.generation + 1))
        trainer.waits(overdue=False)
        self._take_up(trainer)
