"""Commands of an agent to its live trainers."""

from dataclasses import dataclass

from messages.ids import Generation, Rank
from messages.worlds import Assignment


@dataclass(frozen=True, slots=True)
class Enter:
    """Enter this world with this rank."""

    world: Assignment
    rank: Rank
    leaves: bool = False
    """The trainer is in the previous world but not in this one: train until the others have switched, then park."""


@dataclass(frozen=True, slots=True)
class Park:
    """All worlds below the generation are dead: leave them and confirm."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Lease:
    """The agent is connected to the bus. Valid for some seconds."""

    valid_s: float


@dataclass(frozen=True, slots=True)
class Locate:
    """Report the current position."""


TrainerCommand = Enter | Park | Lease | Locate
