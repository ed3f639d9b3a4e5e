"""Measurements of this rank's steps, and the time that it waits for the others before it reports the wait.

A step lasts from the end of the previous all-reduce to the end of its own. Only undisturbed steps count: the first step
of a process compiles and allocates, and a step with a change of the world waits for other reasons. Reports have means,
not increments: a lost report loses nothing.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_HALF_LIFE_S: Final = 30.0
_HALF_LIFE_STEPS: Final = 20.0
"""Time and number of steps after which a step has half its weight in the means; the later of both counts."""
_LAST: Final = 1000
"""Number of recent steps among which the longest is reported: evaluations come every few hundred."""
LEAST_S: Final = 0.25
UNKNOWN_S: Final = 30.0
_STEPS: Final = 2.5
_MEASURED: Final = 16
_KNOWN_AFTER: Final = 4
_QUIET_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Lap:
    """One step of one rank."""

    seconds: float
    """Seconds of the whole step; the optimizer's update and reading samples take the rest of it."""
    computed_s: float
    """Seconds from the batch to its gradients."""
    waited_s: float
    """Seconds in the all-reduce, for other ranks and for the network."""
    is_whole: bool
    """True if nothing disturbed the step."""


class Meter:
    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._batch_s: float | None = None
        self._reduce_s = 0.0
        self._is_whole = False

    def begin(self) -> None:
        """Begins to measure; the first step does not count."""
        self._began_s = self._clock_s()
        self.disturb()

    def disturb(self) -> None:
        """Marks the current step as disturbed."""
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
    """Means of recent steps."""

    steps: int = 0
    """Number of all measured steps."""
    samples: float = 0.0
    seconds: float = 0.0
    computed_s: float = 0.0
    waited_s: float = 0.0
    longest_s: float = 0.0
    """The longest of the last steps, disturbed steps included."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """Sizes that are the same in every step."""

    gradient_bytes: int
    global_batch: int


class Recent:
    """Running means of recent undisturbed steps, and the longest of all recent steps."""

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
    """The time that a rank waits in a collective before it reports the wait.

    A silent peer breaks no connection. Steps of a run take similar times, so a wait of several steps is a sign, but no
    proof: the master locates all ranks. If all of them wait in the same collective, it halts and repairs the world, and
    the limit grows, since the collective itself may have become slower.
    """

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=_MEASURED)
        self._factor = 1.0
        self._quiet = 0

    @property
    def limit_s(self) -> float:
        if len(self._steps_s) < _KNOWN_AFTER:
            return UNKNOWN_S
        return self._factor * max(LEAST_S, _STEPS * self.step_s)

    @property
    def step_s(self) -> float:
        """Median seconds of the last steps; 0 before enough were measured. Any thread may read it."""
        return statistics.median(self._steps_s) if len(self._steps_s) >= _KNOWN_AFTER else 0.0

    def took(self, step_s: float) -> None:
        self._steps_s.append(step_s)
        self._quiet += 1
        if self._quiet >= _QUIET_STEPS:
            self._factor = 1.0

    def was_wrong(self) -> None:
        """Doubles the limit, because no rank was missing."""
        self._factor = min(self._factor * 2, 64.0)
        self._quiet = 0
