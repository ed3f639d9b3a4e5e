"""One trainer that lives through changes, one world, and how the samples of a step are dealt to its ranks."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.worker.commands import Enter, TrainerCommand
from messages.ids import NO_GENERATION, Generation, Range, Rank, WorkerId
from messages.workers import TrainerExit, TrainerStatus
from messages.worlds import Assignment, HotWorld

BATCH = 12
FIRST = Rank(0)
Samples = frozenset[int]
Sums = tuple[int, ...]


@dataclass(eq=False)
class HotTrainer:
    birth: tuple[Generation, Rank]
    local_rank: int
    worker: WorkerId
    tell: Callable[[TrainerStatus], None]
    exited: Callable[[TrainerExit], None]
    alive: bool = True
    silent: bool = False
    stopped: bool = False
    """Silent because it was stopped, as its agent can see."""
    unheard: list[TrainerCommand] = field(default_factory=list)
    """What it was told while it was silent."""
    busy_since_s: float | None = None
    """It is in its loop body for long: it hears commands, but enters no collective and no world."""
    waiting: int | None = None
    overdue: bool = False
    world: "World | None" = None
    rank: Rank = FIRST
    next: Enter | None = None
    halted: Generation = NO_GENERATION
    parked: Generation = NO_GENERATION
    broken: Generation = NO_GENERATION
    sums: Sums = ()
    held: Samples = frozenset()
    active: bool = False
    finished: bool = False
    told: tuple[int | None, ...] = ()
    heard: int = 0
    """Sums it received without having the state."""

    @property
    def generation(self) -> Generation:
        return self.world.generation if self.world is not None else NO_GENERATION

    @property
    def trains(self) -> bool:
        return self.alive and self.world is not None and self.parked <= self.generation

    @property
    def busy(self) -> bool:
        return self.busy_since_s is not None

    def waits(self, *, overdue: bool = True) -> None:
        """It has been in the all-reduce for long, or has left it."""
        self.waiting, self.overdue = (len(self.sums), True) if overdue else (None, False)
        self.report()

    def report(self, *, again: bool = False) -> None:
        """Whenever something changes but what it has alone."""
        place = (self.waiting, self.overdue)
        standing = (self.rank, self.generation, self.parked, self.active, self.finished, self.broken, *place)
        if not self.alive or self.silent or (standing == self.told and not again):
            return
        self.told = standing
        self.tell(
            TrainerStatus(
                self.local_rank,
                self.rank,
                self.generation,
                self.parked,
                done=len(self.sums),
                held=tuple((sample, sample + 1) for sample in sorted(self.held)),
                active=self.active,
                finished=self.finished,
                broken=self.broken,
                waiting=self.waiting,
                overdue=self.overdue,
                step_s=0.1,
            )
        )


@dataclass(eq=False)
class World:
    assignment: Assignment
    told: dict[Rank, HotTrainer] = field(default_factory=dict)
    inside: dict[Rank, HotTrainer] = field(default_factory=dict)
    is_built: bool = False
    runs: bool = False
    summing: bool = False
    dead: bool = False
    closed: bool = False

    @property
    def generation(self) -> Generation:
        return self.assignment.generation

    @property
    def is_full(self) -> bool:
        return len(self.inside) == self.assignment.world_size

    @property
    def members(self) -> list[HotTrainer]:
        return [trainer for trainer in self.inside.values() if trainer.world is self]

    @property
    def hot(self) -> HotWorld | None:
        return self.assignment.hot


def dealt(samples: Samples, ranks: list[Rank]) -> dict[Rank, Samples]:
    in_order = sorted(samples)
    return {rank: frozenset(in_order[place :: len(ranks)]) for place, rank in enumerate(ranks)}


def samples_of(ranges: tuple[Range, ...]) -> Samples:
    return frozenset(sample for first, last in ranges for sample in range(first, last))


def counted_of(hot: HotWorld, rank: Rank, held: Samples) -> Samples:
    """What the assignment does not count is computed anew: somebody else may have it, too."""
    return held if hot.held and held == samples_of(hot.held[rank]) else frozenset()


def missing_of(hot: HotWorld) -> dict[Rank, Samples]:
    """What each rank computes in addition, by what the assignment says is held."""
    held = frozenset().union(*(samples_of(ranges) for ranges in hot.held))
    able = [Rank(rank) for rank, previous in enumerate(hot.previous) if previous >= 0]
    return dealt(frozenset(range(BATCH)) - held, able)
