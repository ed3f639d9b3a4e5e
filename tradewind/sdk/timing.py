"""Where the time of this rank's steps goes, and how long one may wait for the others before that is reported.

The meter reads the clock twice in a step, beside the one reading that every step has anyway. A step lasts from the end
of the all-reduce before it to the end of its own. Only steps that nothing disturbed count: the first of a process
compiles and allocates, and one that lived through a change of the world waited for other reasons. What is told are
means, not increments: one report tells as much as all of them.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_HALF_LIFE_S: Final = 30.0
_HALF_LIFE_STEPS: Final = 20.0
"""A step counts half as much after so much time, but not after fewer steps."""
_LAST: Final = 1000
"""Number of recent steps among which the longest is kept: evaluations come every few hundred."""
LEAST_S: Final = 0.25
UNKNOWN_S: Final = 30.0
_STEPS: Final = 2.5
_MEASURED: Final = 16
_KNOWN_AFTER: Final = 4
_CALM_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Lap:
    """One step of one rank."""

    seconds: float
    """All of it: what was neither computed nor waited for is the optimizer's update, and the reading of samples."""
    computed_s: float
    """From the batch handed out to its gradients being there."""
    waited_s: float
    """In the all-reduce: for other ranks, and for the network."""
    is_whole: bool
    """Nothing disturbed it."""


class Meter:
    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._batch_s: float | None = None
        self._reduce_s = 0.0
        self._is_whole = False

    def begin(self) -> None:
        """The next step is the first of its kind."""
        self._began_s = self._clock_s()
        self.disturb()

    def disturb(self) -> None:
        """The present step is not like others."""
        self._batch_s = None
        self._is_whole = False

    def hand_out(self) -> None:
        if self._batch_s is not None:
            self._is_whole = False
        self._batch_s = self._clock_s()

    def begin_all_reduce(self) -> None:
        self._reduce_s = self._clock_s()

    def end_step(self) -> Lap:
        now_s = self._clock_s()
        computed_s = self._reduce_s - self._batch_s if self._batch_s is not None else 0.0
        lap = Lap(now_s - self._began_s, computed_s, now_s - self._reduce_s, self._is_whole)
        self._began_s, self._batch_s, self._is_whole = now_s, None, True
        return lap


@dataclass(frozen=True, slots=True)
class Means:
    """Of one step of late."""

    steps: int = 0
    """How many there were, all in all."""
    samples: float = 0.0
    seconds: float = 0.0
    computed_s: float = 0.0
    waited_s: float = 0.0
    longest_s: float = 0.0
    """The longest of the last steps, also of those that something disturbed."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """What is the same in every step."""

    gradient_bytes: int
    global_batch: int


class Recent:
    """What undisturbed steps were like of late, and the longest of all."""

    def __init__(self) -> None:
        self._steps = 0
        self._last_s: deque[float] = deque(maxlen=_LAST)
        self._weight = self._samples = self._seconds = self._computed_s = self._waited_s = 0.0

    def add(self, samples: int, lap: Lap) -> None:
        self._last_s.append(lap.seconds)
        if not lap.is_whole:
            return
        kept = 0.5 ** min(lap.seconds / _HALF_LIFE_S, 1 / _HALF_LIFE_STEPS)
        self._steps += 1
        self._weight = kept * self._weight + 1
        self._samples = kept * self._samples + samples
        self._seconds = kept * self._seconds + lap.seconds
        self._computed_s = kept * self._computed_s + lap.computed_s
        self._waited_s = kept * self._waited_s + lap.waited_s

    def means(self) -> Means:
        longest_s = max(self._last_s, default=0.0)
        if not self._steps:
            return Means(longest_s=longest_s)
        weight = self._weight
        return Means(
            steps=self._steps,
            samples=self._samples / weight,
            seconds=self._seconds / weight,
            computed_s=self._computed_s / weight,
            waited_s=self._waited_s / weight,
            longest_s=longest_s,
        )


class Patience:
    """How long a rank waits in a collective before it reports that it does.

    A silent peer breaks no connection. Steps of a run take alike long, so a wait of several steps is a sign. It is no
    proof: the master asks where all ranks are. If all of them wait in the same collective, the world is halted and
    repaired, and patience grows, since the collective itself may have become slower.
    """

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
