"""The four jobs, and the folder through which each gets orders and reports."""

import json
import math
from pathlib import Path

import msgspec

from messages.jobs import Failures, JobSpec, Launch, Timeouts, Workers
from tests.chaos.faults import JOBS, Fault, Kind, Target, count

SCRIPT = Path(__file__).with_name("train.py")
BATCH = 24
STEP_S = 0.1
"""Duration of a step until the faults are over."""
STALL_S = 10.0
FAILURES_MAX = 1000
WORKERS = {Target.KILLS: 3, Target.STOPS: 3, Target.SLOW: 2, Target.STALLED: 2}


class Job:
    def __init__(self, name: Target, folder: Path, minutes: float, faults: tuple[Fault, ...]) -> None:
        self.name = name
        self.folder = folder
        self.workers = WORKERS[name]
        self.steps = math.ceil(minutes * 60 / STEP_S) + 100
        """More steps than fit into the faults, so that the job cannot end before them."""
        self._stalls = count(faults, Kind.STALL_RANK)
        self._orders = 0
        folder.mkdir(parents=True)
        (folder / "hold").touch()

    @property
    def samples(self) -> int:
        return self.steps * BATCH

    @property
    def traces(self) -> Path:
        return self.folder / "trace"

    def spec(self) -> JobSpec:
        escapes = ("escape",) if self.name is Target.KILLS else ()
        arguments = (str(self.folder), f"{self.steps}", f"{BATCH}", f"{STEP_S}", *escapes)
        return JobSpec(
            self.name.value,
            Launch(
                script=str(SCRIPT),
                args=arguments,
                workdir=str(self.folder),
                env={"OMP_NUM_THREADS": "1", "TRADEWIND_TRACE": str(self.traces)},
            ),
            Workers(max=self.workers, min=1),
            failures=self._failures(),
            timeouts=self._timeouts(),
        )

    def order(self, seconds: float, draw: int) -> None:
        """Orders one rank to sleep for `seconds` in its loop body; 0: for ever."""
        self._orders += 1
        fresh = self.folder / "order.new"
        fresh.write_text(json.dumps({"seconds": seconds, "draw": draw}))
        fresh.replace(self.folder / f"order-{self._orders:03}.json")

    def let_go(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)

    def _failures(self) -> Failures:
        match self.name:
            case Target.STALLED:
                return Failures(max=max(10, self._stalls), backoff_s=0.5, backoff_max_s=2.0)
            case Target.KILLS:
                return Failures(max=FAILURES_MAX, backoff_s=0.5, backoff_max_s=2.0)
            case _:
                return Failures(max=0)

    def _timeouts(self) -> Timeouts:
        """Timeouts of the job; without `stall_s`, which old versions lack, a stalled rank stays for ever."""
        if self.name is not Target.STALLED or "stall_s" not in Timeouts.__struct_fields__:
            return Timeouts()
        return msgspec.convert({"stall_s": STALL_S}, Timeouts)


def four_jobs(folder: Path, minutes: float, faults: tuple[Fault, ...]) -> dict[Target, Job]:
    return {name: Job(name, folder / "jobs" / name.value, minutes, faults) for name in JOBS}
