"""What the rest of the world may hear of a step: only once every rank has it.

The sum of step k + 1 proves that everybody has step k. A rank that alone had a step and died with it leaves no trace.
"""

import time
from collections.abc import Callable
from typing import Final

from tradewind.protocol import trainer as protocol
from tradewind.protocol.trainer import NOTHING_COUNTED, Lap, StepReport, StepsCounted, StepSize
from tradewind.sdk.meter import Recent

_EVERY_S: Final = 0.25
_HELD_AT_MOST: Final = 512


class Reports:
    def __init__(self, tell: Callable[[bytes], None] | None, size: StepSize | None = None) -> None:
        self._tell = tell
        self._size = size
        self._recent = Recent()
        self._place = (0, 0)
        """The generation and rank of the steps that are held here."""
        self._newest: StepReport | None = None
        self._proven: list[StepReport] = []
        self._told_s = 0.0

    def add(
        self,
        step: int,
        loss: float | None,
        samples: int,
        generation: int,
        rank: int,
        lap: Lap | None = None,
        counted: StepsCounted = NOTHING_COUNTED,
    ) -> None:
        """The step is here; the one before it is everywhere."""
        self._prove()
        if (generation, rank) != self._place:
            self._tell_proven()
            self._place = (generation, rank)
        elif time.monotonic() - self._told_s >= _EVERY_S:
            self._tell_proven()
        self._newest = StepReport(step, loss, samples, time.time(), lap, counted)

    def close(self) -> None:
        """Everybody has the last step."""
        self._prove()
        self._tell_proven()

    def _prove(self) -> None:
        if self._newest is not None:
            self._proven.append(self._newest)
            self._newest = None
            del self._proven[:-_HELD_AT_MOST]

    def _tell_proven(self) -> None:
        if self._tell is not None and self._proven:
            for each in self._proven:
                if each.lap is not None:
                    self._recent.add(each.samples, each.lap)
            self._tell(protocol.progress(*self._place, self._proven, self._size, self._recent.means()))
            self._told_s = time.monotonic()
        self._proven = []
