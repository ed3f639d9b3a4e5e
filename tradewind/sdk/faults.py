"""Failures on purpose, for tests: TRADEWIND_FAULTS="rank:step:phase:signal[,…]", e.g. "2:10:in_sum:SIGKILL".

`rank` is the one in the present world; `*` stands for any rank, or any step. The sums after the last step, by which all
learn that they may end, are those of step number `steps`. A fault happens once in the life of a process.
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
)


class Faults:
    def __init__(self, planned: str) -> None:
        self._planned = [_parse(each) for each in planned.split(",") if each]

    def __call__(self, phase: str, rank: int, step: int) -> None:
        for fault in self._planned:
            if fault[0] in ("*", str(rank)) and fault[1] in ("*", str(step)) and fault[2] == phase:
                self._planned.remove(fault)
                os.kill(os.getpid(), fault[3])
                return


def _parse(text: str) -> tuple[str, str, str, signal.Signals]:
    rank, step, phase, name = text.split(":")
    if phase not in PHASES:
        raise ValueError(f"{VARIABLE}: unknown phase {phase!r}; phases are {', '.join(PHASES)}")
    return rank, step, phase, signal.Signals[name]
