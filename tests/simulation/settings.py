"""The kind of run of a seed: the source of its machines, the script's API, the budget."""

import random
from dataclasses import dataclass
from enum import StrEnum


class Supply(StrEnum):
    STATIC = "workers of a static cluster"
    ORDERED = "nodes bought in the order of the fleet"
    PLANNED = "nodes bought by a plan"


@dataclass(frozen=True, slots=True)
class Setting:
    supply: Supply = Supply.STATIC
    is_live: bool = False
    """The script uses the SDK, so that worlds change in place."""
    has_budget: bool = False
    """The budget runs out, and the owner raises it."""
    has_pauses: bool = False
    """The job is paused at chosen moments of a change."""
    has_barren_cluster: bool = False
    """A second cluster takes its share and never brings a worker."""
    has_tiny_limits: bool = False
    """Worlds of a few members are sent as deltas and pointers, and stored in chunks."""

    @property
    def is_bought(self) -> bool:
        return self.supply is not Supply.STATIC

    def __str__(self) -> str:
        script = "a script with the SDK" if self.is_live else "a plain script"
        more = {"a budget": self.has_budget, "pauses": self.has_pauses, "a barren cluster": self.has_barren_cluster}
        more["tiny limits"] = self.has_tiny_limits
        return ", ".join([script, self.supply.value, *(name for name, has in more.items() if has)])


def setting_of(seed: int) -> Setting:
    """The setting of a seed, from its own random stream, so that a new kind of run changes no faults of a seed."""
    chance = random.Random(f"setting {seed}")
    supply = chance.choice((Supply.STATIC, *Supply))
    is_static = supply is Supply.STATIC
    return Setting(
        supply,
        is_live=chance.random() < 0.5,
        has_budget=supply is Supply.PLANNED and chance.random() < 0.5,
        has_pauses=is_static and chance.random() < 0.3,
        has_barren_cluster=is_static and chance.random() < 0.3,
        has_tiny_limits=random.Random(f"limits {seed}").random() < 0.4,
    )
