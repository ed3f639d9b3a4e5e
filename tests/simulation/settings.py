"""What kind of run a seed is: where its machines come from, and what it may spend."""

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
    has_budget: bool = False

    @property
    def is_bought(self) -> bool:
        return self.supply is not Supply.STATIC


def setting_of(seed: int) -> Setting:
    chance = random.Random(f"setting {seed}")
    supply = chance.choice((Supply.STATIC, Supply.ORDERED, Supply.PLANNED))
    return Setting(supply, has_budget=supply is Supply.PLANNED and chance.random() < 0.5)
