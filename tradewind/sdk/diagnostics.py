"""A trainer's messages for people, its traces for measurements, and the faults that tests inject into it.

- `say` prints one line for people on standard error.
- TRADEWIND_TRACE=FOLDER makes each trainer write one line of JSON for each event: `at` in seconds of the machine's
  monotonic clock, `what`, and the rank, generation and step.
- TRADEWIND_FAULTS="rank:step:phase:signal[,…]" makes the trainer send a signal to itself, e.g.
  "2:10:in_all_reduce:SIGKILL". `rank` is its rank in the current world; `*` stands for any rank, or any step. The
  all-reduces after the last step, by which all ranks agree to end, have the step number `steps`. A fault happens once
  in each process.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tradewind.sdk.timing import Meter, Patience

TRACE: Final = "TRADEWIND_TRACE"
FAULTS: Final = "TRADEWIND_FAULTS"
PHASES: Final = (
    "compute",
    "before_all_reduce",
    "in_all_reduce",
    "after_all_reduce",
    "applied",
    "switched",
    "building",
    "repair",
    "catching_up",
    "join_entered",
    "join_loaded",
    "join_level",
)


def say(message: str) -> None:
    print(f"tradewind: {message}", file=sys.stderr, flush=True)


class Trace:
    def __init__(self, folder: str | None) -> None:
        self._file: TextIO | None = None
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = (Path(folder) / f"{os.getpid()}.jsonl").open("a", buffering=1)

    def __call__(self, what: str, rank: int, generation: int, step: int, **fields: object) -> None:
        if self._file is not None:
            event = {"at": time.monotonic(), "what": what, "rank": rank, "generation": generation, "step": step}
            self._file.write(json.dumps(event | fields) + "\n")


class Faults:
    def __init__(self, planned: str) -> None:
        self._planned = [_parse(each) for each in planned.split(",") if each]

    def __call__(self, phase: str, rank: int, step: int) -> None:
        for fault in self._planned:
            if fault[0] in ("*", str(rank)) and fault[1] in ("*", str(step)) and fault[2] == phase:
                self._planned.remove(fault)
                os.kill(os.getpid(), fault[3])
                return


@dataclass(frozen=True, slots=True)
class Instruments:
    """Instruments of a training run: the times of its steps, its trace, and injected faults."""

    meter: Meter
    patience: Patience
    trace: Trace
    faults: Faults

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> "Instruments":
        return Instruments(Meter(), Patience(), Trace(environ.get(TRACE)), Faults(environ.get(FAULTS, "")))


def _parse(text: str) -> tuple[str, str, str, signal.Signals]:
    rank, step, phase, name = text.split(":")
    if phase not in PHASES:
        raise ValueError(f"{FAULTS}: unknown phase {phase!r}; phases are {', '.join(PHASES)}")
    return rank, step, phase, signal.Signals[name]
