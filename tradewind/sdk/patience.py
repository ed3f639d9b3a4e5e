"""How long a rank waits in a collective before it reports that it does.

A silent peer breaks no connection. Steps of a run take alike long, so a wait of several steps is a sign. It is no
proof: the master asks where all ranks are. If all of them wait in the same collective, the world is halted and
repaired, and patience grows, since the collective itself may have become slower.
"""

import statistics
from collections import deque
from typing import Final

LEAST_S: Final = 0.25
UNKNOWN_S: Final = 30.0
_STEPS: Final = 2.5
_MEASURED: Final = 16
_KNOWN_AFTER: Final = 4
_CALM_STEPS: Final = 100


class Patience:
    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=_MEASURED)
        self._factor = 1.0
        self._calm = 0

    @property
    def limit_s(self) -> float:
        if len(self._steps_s) < _KNOWN_AFTER:
            return UNKNOWN_S
        return self._factor * max(LEAST_S, _STEPS * self.step_s)

    @property
    def step_s(self) -> float:
        """Median seconds of the last steps; 0 before enough were measured. Any thread may ask."""
        return statistics.median(self._steps_s) if len(self._steps_s) >= _KNOWN_AFTER else 0.0

    def took(self, step_s: float) -> None:
        self._steps_s.append(step_s)
        self._calm += 1
        if self._calm >= _CALM_STEPS:
            self._factor = 1.0

    def was_wrong(self) -> None:
        """All were there: the next wait may last twice as long before it is reported."""
        self._factor = min(self._factor * 2, 64.0)
        self._calm = 0
