"""Failures on purpose, for tests: TRADEWIND_FAULTS="rank:step:phase:signal[,…]", e.g. "2:10:in_sum:SIGKILL".

`rank` is the one in the present world, or `*`. A fault happens once in the life of a process.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "TRADEWIND_FAULTS"
PHASES: Final = (
    "compute",
    "before_sum",
    "in_sum",
    "after_sum",
    "applied",
    "switched",
    "building",
    "repair",
    "catching_up",
    "join_entered",
    "join_loaded",
    "join_level",
    "closing",
)


class Faults:
    def __init__(self, planned: str) -> None:
        self._planned = [_parse(each) for each in planned.split(",") if each]

    def __call__(self, phase: str, rank: int, step: int) -> None:
        for fault in self._planned:
            if fault[:3] in ((str(rank), step, phase), ("*", step, phase)):
                self._planned.remove(fault)
                os.kill(os.getpid(), fault[3])
                return


def _parse(text: str) -> tuple[str, int, str, signal.Signals]:
    rank, step, phase, name = text.split(":")
    if phase not in PHASES:
        raise ValueError(f"{VARIABLE}: unknown phase {phase!r}; phases are {', '.join(PHASES)}")
    return rank, int(step), phase, signal.Signals[name]
