"""What an agent may say to a trainer that lives through changes of the world."""

from dataclasses import dataclass

from messages.ids import Generation, Rank
from messages.worlds import Assignment


@dataclass(frozen=True, slots=True)
class Enter:
    """Come into this world with this rank."""

    world: Assignment
    rank: Rank
    leaves: bool = False
    """It is in the world before and not in this one: train until the others have gone over, then park."""


@dataclass(frozen=True, slots=True)
class Park:
    """Every world below the generation is dead: get out and say so."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Lease:
    """The agent is in touch with the bus."""

    valid_s: float


@dataclass(frozen=True, slots=True)
class Locate:
    """Report where you are."""


TrainerCommand = Enter | Park | Lease | Locate
