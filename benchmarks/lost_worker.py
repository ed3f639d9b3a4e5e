"""One round of losing a worker: train, kill one of the workers as if its machine were lost, wait for the next step.

The clock runs from the kill to the first step that the smaller world completed, as the script itself wrote it down.
Nothing is told to the contestant: how it learns of the loss is what is measured.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from benchmarks import trace
from benchmarks.processes import kill, leaving_none

SCRIPT = Path(__file__).parents[1] / "examples" / "ddp_checkpoint" / "train.py"
SCRIPT_ARGS = ("--save-every", "20", "--step-ms", "100")
STEPS_BEFORE_THE_KILL = 30
_POLL_S = 0.05
_TAIL_CHARACTERS = 2000
_Seen = TypeVar("_Seen")


class Round(Struct, frozen=True, omit_defaults=True):
    """What one round saw. `restart_s` is None if no step of the smaller world came in time: then `problem` says why."""

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
        """Start training by this script and arguments; logs and whatever else go to the folder."""

    def one_worker(self, started: Sequence["subprocess.Popen[bytes]"]) -> list[int]:
        """All processes of one worker that the others can do without."""


def start_logged(
    command: Sequence[str], folder: Path, name: str, extra_env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """In a session of its own, so that a ctrl-C reaches the benchmark only, which then ends it."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), **(extra_env or {})}
    # Without cached bytecode every cold start compiles much of torch anew: seconds that only the peer would pay.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
        )


class RoundFailed(Exception):
    """The contestant did not train, or did not go on."""


def lose_one(
    contestant: Contestant,
    script: Path = SCRIPT,
    script_args: Sequence[str] = SCRIPT_ARGS,
    *,
    workers: int,
    timeout_s: float,
) -> Round:
    with tempfile.TemporaryDirectory(prefix="tw-bench-", ignore_cleanup_errors=True) as name, leaving_none():
        folder = Path(name)
        steps = folder / "steps"
        command = [str(script), "--steps", "1000000", "--snapshot", str(folder / "snapshot.pt"), "--trace", str(steps)]
        started = contestant.start([*command, *script_args], folder)
        killed_after_step = None
        try:
            _wait(lambda: _has_trained(steps, workers), started, timeout_s, f"{workers} workers to train")
            victims = contestant.one_worker(started)
            killed_at_unix_s = time.time()
            kill(victims)
            killed_after_step = trace.last_step(trace.read(steps), workers)
            first = _wait(
                lambda: trace.first_of_world(trace.read(steps), workers - 1, killed_at_unix_s),
                [process for process in started if process.pid not in victims],
                timeout_s,
                f"{workers - 1} workers to go on",
            )
        except RoundFailed as failure:
            return Round(contestant.side, None, killed_after_step, problem=f"{failure}{_tail(folder)}")
        return Round(contestant.side, first.at_unix_s - killed_at_unix_s, killed_after_step, first.step)


def _has_trained(steps: Path, workers: int) -> bool:
    last = trace.last_step(trace.read(steps), workers)
    return last is not None and last >= STEPS_BEFORE_THE_KILL


def _wait(
    look: Callable[[], _Seen | None], alive: Sequence["subprocess.Popen[bytes]"], timeout_s: float, awaited: str
) -> _Seen:
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        for process in alive:
            if (code := process.poll()) is not None:
                raise RoundFailed(f"waited for {awaited}, but a process ended with exit code {code}")
        if time.monotonic() > deadline:
            raise RoundFailed(f"waited for {awaited} for {timeout_s:.0f} s in vain")
        time.sleep(_POLL_S)
    return seen


def _tail(folder: Path) -> str:
    """The ends of the logs, for people."""
    logs = sorted(folder.glob("*.log"))
    return "".join(f"\n--- {log.name}\n{log.read_text(errors='replace')[-_TAIL_CHARACTERS:]}" for log in logs)
