"""A trainer as its agent knows it: by the generation and rank it was forked under, whatever its rank is now."""

from dataclasses import dataclass

from agents.worker.commands import TrainerCommand
from messages.ids import NO_GENERATION, Generation, Rank
from messages.workers import TrainerStatus

Birth = tuple[Generation, Rank]


@dataclass(frozen=True, slots=True)
class Told:
    command: TrainerCommand
    at_s: float


@dataclass(frozen=True, slots=True)
class Trainer:
    """Alive, or asked for."""

    generation: Generation
    rank: Rank
    local_rank: int = 0
    pid: int | None = None
    """None until the host has forked it."""
    invited: bool = False
    """Forked ahead of any world."""
    entered: bool = False
    """It was told to come into a world."""
    above: Generation = NO_GENERATION
    """It is in no world below this one: it said so, or never was told of one."""
    attached: TrainerStatus | None = None
    """What it last said of itself; None if its script does not use the SDK, or not yet, or the connection broke."""
    detached_at_s: float | None = None
    """When the connection broke that has not come back."""
    told: Told | None = None
    finished: bool = False
    """It said that all steps are done."""

    @property
    def birth(self) -> Birth:
        return self.generation, self.rank

    @property
    def is_live(self) -> bool:
        """Its script uses the SDK."""
        return self.attached is not None or self.detached_at_s is not None

    @property
    def newborn(self) -> bool:
        """In no world, and on the way into none."""
        return self.invited and not self.entered

    def deaf(self, at_s: float, patience_s: float) -> bool:
        """It cannot be told anything: it never attached, or has been gone for longer than a reconnection takes."""
        return self.attached is None and (self.detached_at_s is None or at_s >= self.detached_at_s + patience_s)

    def shows(self, generation: Generation) -> bool:
        """It trains in this world, or in a newer one."""
        return self.attached is not None and self.attached.generation >= generation

    def clear_of(self, generation: Generation) -> bool:
        """It takes part in nothing below this generation."""
        return self.newborn or self.above >= generation


def a_forked(generation: Generation, rank: Rank, local_rank: int, *, invited: bool = False) -> Trainer:
    return Trainer(generation, rank, local_rank, invited=invited, above=generation)
