"""How long a spot node lives if nothing else takes it.

A Weibull distribution with a shape below 1: many die young, those that last go on lasting. `cap_s` is the end that some
clouds set to every spot node, such as 24 hours.
"""

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetimes:
    mean_s: float
    shape: float = 0.7
    cap_s: float = math.inf

    def draw_s(self, seed: str) -> float:
        """The same seed, the same lifetime."""
        scale_s = self.mean_s / math.gamma(1 + 1 / self.shape)
        return min(self.cap_s, random.Random(seed).weibullvariate(scale_s, self.shape))
