"""A peer that does not restart trainers either: torchft, with its defaults and with its fastest settings.

It is not a dependency: to measure it, name an interpreter that has torchft and torch.
"""

import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct

from benchmarks import trace
from benchmarks.live.fleet import UNWATCHED_S, at_a_random_moment, strike
from benchmarks.live.report import Row
from benchmarks.processes import leaving_none
from benchmarks.stacks import start_logged
from benchmarks.trace import TracedStep
from runtime.children import free_port

_LIGHTHOUSE: Final = (
    "import sys, time; from torchft.coordination import LighthouseServer; "
    "server = LighthouseServer(bind=sys.argv[1], min_replicas=int(sys.argv[2]), "
    "**{name: int(value) for name, value in (pair.split('=') for pair in sys.argv[3:])}); time.sleep(86400)"
)
_STEPS_BEFORE: Final = 20
_STEPS_AFTER: Final = 10
_WITHIN_S: Final = 90.0
_POLL_S: Final = 0.05
_TAIL_CHARACTERS: Final = 1000


class Settings(Struct, frozen=True):
    name: str
    lighthouse: tuple[str, ...] = ()


SETTINGS: Final = (
    Settings("torchft default"),
    Settings("torchft aggressive", ("heartbeat_timeout_ms=300", "quorum_tick_ms=10", "join_timeout_ms=100")),
)


class PeerFailed(Exception):
    """The peer did not train, or did not continue."""


def measure(python: str, settings: Settings, rounds: int, world: int) -> Iterator[Row]:
    chance = random.Random(world)
    for number in range(1, rounds + 1):
        of = {"side": settings.name, "world": world, "case": "last", "round_trip_ms": 0.0, "number": number}
        try:
            yield {**of, **_lose_one(python, settings, world, chance)}
        except PeerFailed as failure:
            yield {**of, "problem": str(failure)}


def _lose_one(python: str, settings: Settings, world: int, chance: random.Random) -> Row:
    with tempfile.TemporaryDirectory(prefix="tw-torchft-", ignore_cleanup_errors=True) as name, leaving_none():
        folder = Path(name)
        # With more than one it stalls: ranks between survivors stay in the all-reduce until a neighbour aborts it.
        port, least = free_port(), 1
        lighthouse = [python, "-c", _LIGHTHOUSE, f"0.0.0.0:{port}", str(least), *settings.lighthouse]
        start_logged(lighthouse, folder, "lighthouse")
        script = Path(__file__).with_name("torchft_trainer.py")
        reported = ["--lighthouse", f"http://127.0.0.1:{port}", "--least", str(least), "--steps", str(folder)]
        replicas = [
            start_logged([python, str(script), *reported, "--replica", f"r{number}"], folder, f"replica-{number}")
            for number in range(world)
        ]

        def steps(pid: int) -> list[TracedStep]:
            file = folder / f"{pid}.steps"
            return trace.parse(file.read_text(encoding="ascii")) if file.exists() else []

        pids = [replica.pid for replica in replicas]
        _wait(lambda: all(_together(steps(pid), world) >= _STEPS_BEFORE for pid in pids), folder, "all to train")
        at_a_random_moment(chance)
        struck_s = strike(pids[-1:], signal.SIGKILL)
        time.sleep(UNWATCHED_S)

        def continued() -> bool:
            return all(_together(steps(pid), world - 1, struck_s) >= _STEPS_AFTER for pid in pids[:-1])

        _wait(continued, folder, "the survivors to continue")
        after = {pid: [step for step in steps(pid) if step.at_unix_s > struck_s] for pid in pids[:-1]}
        firsts = [next(step.at_unix_s for step in own if step.world < world) for own in after.values()]
        pauses = [max(late.at_unix_s - early.at_unix_s for early, late in pairwise(steps(pid))) for pid in pids[:-1]]
        return {
            "recovery_ms": (max(firsts) - struck_s) * 1000,
            "longest_gap_ms": max(pauses) * 1000,
            "healthy_dropped": int(any(step.world < world - 1 for own in after.values() for step in own)),
        }


def _together(steps: list[TracedStep], world: int, since_s: float = 0.0) -> int:
    return sum(step.world == world and step.at_unix_s > since_s for step in steps)


def _wait(look: Callable[[], bool], folder: Path, awaited: str) -> None:
    deadline_s = time.monotonic() + _WITHIN_S
    while not look():
        if time.monotonic() > deadline_s:
            logs = (log.read_text(errors="replace")[-_TAIL_CHARACTERS:] for log in sorted(folder.glob("*.log")))
            raise PeerFailed(f"timeout after {_WITHIN_S:.0f} s: waited for {awaited}\n" + "\n---\n".join(logs))
        time.sleep(_POLL_S)


def main() -> int:
    for settings in SETTINGS:
        for row in measure(sys.argv[1], settings, 1, 4):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
