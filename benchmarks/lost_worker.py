"""One round of losing a worker: train, kill one of the workers as if its machine were lost, wait for the next step.

The clock runs from the kill to the first step that the smaller world completed, as the script traced it. The contestant
gets no hint: how it detects the loss is part of the measurement.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from benchmarks import trace
from benchmarks.processes import kill
from benchmarks.stacks import StackFailed, own_folder, tails, wait

SCRIPT = Path(__file__).parents[1] / "examples" / "ddp_checkpoint" / "train.py"
SCRIPT_ARGS = ("--save-every", "20", "--step-ms", "100")
STEPS_BEFORE_THE_KILL = 30
_POLL_S = 0.05


class Round(Struct, frozen=True, omit_defaults=True):
    """Result of one round. `restart_s` is None if the smaller world completed no step in time; see `problem`."""

    side: str
    restart_s: float | None
    killed_after_step: int | None = None
    resumed_at_step: int | None = None
    problem: str | None = None

    def raw(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    def summary(self) -> str:
        if self.restart_s is None:
            return f"{self.side} failed: {self.problem}"
        return f"{self.side} {self.restart_s:.2f} s, from step {self.killed_after_step} to step {self.resumed_at_step}"


class Contestant(Protocol):
    @property
    def side(self) -> str: ...

    def start(self, command: Sequence[str], folder: Path) -> list["subprocess.Popen[bytes]"]:
        """Start training with this script and arguments; put logs and other files into the folder."""

    def one_worker(self, started: Sequence["subprocess.Popen[bytes]"]) -> list[int]:
        """All processes of one worker that the others can do without."""


def lose_one(
    contestant: Contestant,
    script: Path = SCRIPT,
    script_args: Sequence[str] = SCRIPT_ARGS,
    *,
    workers: int,
    timeout_s: float,
) -> Round:
    with own_folder("tw-bench-") as folder:
        steps = folder / "steps"
        command = [str(script), "--steps", "1000000", "--snapshot", str(folder / "snapshot.pt"), "--trace", str(steps)]
        started = contestant.start([*command, *script_args], folder)
        killed_after_step = None
        try:
            wait(
                lambda: _has_trained(steps, workers),
                f"{workers} workers to train",
                started,
                timeout_s=timeout_s,
                poll_s=_POLL_S,
            )
            victims = contestant.one_worker(started)
            killed_at_unix_s = time.time()
            kill(victims)
            killed_after_step = trace.last_step(trace.read(steps), workers)
            first = wait(
                lambda: trace.first_of_world(trace.read(steps), workers - 1, killed_at_unix_s),
                f"{workers - 1} workers to continue",
                [process for process in started if process.pid not in victims],
                timeout_s=timeout_s,
                poll_s=_POLL_S,
            )
        except StackFailed as failure:
            return Round(contestant.side, None, killed_after_step, problem=f"{failure}{tails(folder)}")
        return Round(contestant.side, first.at_unix_s - killed_at_unix_s, killed_after_step, first.step)


def _has_trained(steps: Path, workers: int) -> bool:
    last = trace.last_step(trace.read(steps), workers)
    return last is not None and last >= STEPS_BEFORE_THE_KILL
