"""Reports of steps to the agent: a step is reported only once every rank has it.

The all-reduce of step k + 1 proves that all ranks have step k. A step that only one rank had, and that died with it, is
never reported.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tradewind.protocol import trainer as protocol
from tradewind.protocol.steps import StepReport, StepsCounted
from tradewind.sdk.timing import Lap, Means, Recent, StepSize

_EVERY_S: Final = 0.25
_HELD_AT_MOST: Final = 512


@dataclass(frozen=True, slots=True)
class _Step:
    report: StepReport
    lap: Lap | None
    counted: StepsCounted


class Reports:
    def __init__(self, tell: Callable[[bytes], None] | None, size: StepSize | None = None) -> None:
        self._tell = tell
        self._size = size
        self._recent = Recent()
        self._place = (0, 0)
        """The generation and rank of the steps that wait here."""
        self._newest: _Step | None = None
        self._proven: list[_Step] = []
        self._sent_s = 0.0

    def add(
        self,
        step: int,
        loss: float | None,
        samples: int,
        generation: int,
        rank: int,
        lap: Lap | None = None,
        counted: StepsCounted | None = None,
    ) -> None:
        """Adds a step that this rank has; the step before it is then on all ranks."""
        self._prove()
        if (generation, rank) != self._place:
            self._tell_proven()
            self._place = (generation, rank)
        elif time.monotonic() - self._sent_s >= _EVERY_S:
            self._tell_proven()
        self._newest = _Step(report_of(step, loss, samples, time.time()), lap, counted or StepsCounted())

    def close(self) -> None:
        """Reports the last step, which all ranks have."""
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
                    self._recent.add(each.report.samples or 0, each.lap)
            self._tell(protocol.encode_message(self._message()))
            self._sent_s = time.monotonic()
        self._proven = []

    def _message(self) -> protocol.Progress:
        generation, rank = self._place
        reports = tuple(each.report for each in self._proven)
        measured = None if self._size is None else measured_of(self._size, self._recent.means())
        return protocol.Progress(generation, rank, reports, self._proven[-1].counted, measured)


def report_of(step: int, loss: float | None, samples: int, at: float) -> StepReport:
    """Makes the report of a step. A loss that is not finite becomes a flag: JSON has no such numbers."""
    if loss is None or math.isfinite(loss):
        return StepReport(step, loss, samples, at)
    return StepReport(step, None, samples, at, nonfinite=True)


def measured_of(size: StepSize, means: Means) -> dict[str, int | float]:
    return {
        "steps": means.steps,
        "samples": round(means.samples, 3),
        "seconds": round(means.seconds, 6),
        "computed_s": round(means.computed_s, 6),
        "waited_s": round(means.waited_s, 6),
        "longest_s": round(means.longest_s, 6),
        "gradient_bytes": size.gradient_bytes,
        "global_batch": size.global_batch,
    }
