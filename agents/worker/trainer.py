"""The agent's view of a trainer, identified by the generation and rank with which it was forked."""

from dataclasses import dataclass

from agents.worker.commands import TrainerCommand
from messages.ids import NO_GENERATION, Generation, Rank
from messages.workers import TrainerStatus

Birth = tuple[Generation, Rank]


@dataclass(frozen=True, slots=True)
class SentCommand:
    command: TrainerCommand
    at_s: float


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer that is alive, or whose fork was requested."""

    generation: Generation
    rank: Rank
    local_rank: int = 0
    pid: int | None = None
    """None until the host has forked it."""
    invited: bool = False
    """True if it was forked before its first world."""
    entered: bool = False
    """True if the agent has told it to enter a world."""
    above: Generation = NO_GENERATION
    """The trainer is in no world below this generation."""
    attached: TrainerStatus | None = None
    """Its last status; None if its script does not use the SDK, has not attached yet, or the connection broke."""
    detached_at_s: float | None = None
    """When the connection broke; None if it is back."""
    sent: SentCommand | None = None
    finished: bool = False
    """True if the trainer reported that all steps are done."""

    @property
    def birth(self) -> Birth:
        return self.generation, self.rank

    @property
    def is_live(self) -> bool:
        """True if its script uses the SDK."""
        return self.attached is not None or self.detached_at_s is not None

    @property
    def newborn(self) -> bool:
        """True if it is in no world and was not told to enter one."""
        return self.invited and not self.entered

    def deaf(self, at_s: float, patience_s: float) -> bool:
        """True if it cannot get commands: it never attached, or was detached for longer than a reconnection takes."""
        return self.attached is None and (self.detached_at_s is None or at_s >= self.detached_at_s + patience_s)

    def shows(self, generation: Generation) -> bool:
        """True if it trains in this world or in a newer one."""
        return self.attached is not None and self.attached.generation >= generation

    def clear_of(self, generation: Generation) -> bool:
        """True if it takes part in no world below this generation."""
        return self.newborn or self.above >= generation


def a_forked(generation: Generation, rank: Rank, local_rank: int, *, invited: bool = False) -> Trainer:
    return Trainer(generation, rank, local_rank, invited=invited, above=generation)
