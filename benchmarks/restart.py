"""How long training stops when a worker is lost without notice: `tradewind run` against tuned torchrun.

Both run the same unmodified script on loopback and lose one worker by SIGKILL, alternating, so that the noise of the
machine is the same for both.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import report, torchrun_peer
from benchmarks.lost_worker import SCRIPT, SCRIPT_ARGS, Round, lose_one
from benchmarks.processes import command_line
from benchmarks.stacks import StackFailed, start_logged
from runtime.children import descendants

DESCRIPTION: Final = "seconds from the SIGKILL of one of 4 workers to the next step, against tuned torchrun"
_NAME: Final = "restart"
_TARGET: Final = 0.2
_WORKERS: Final = 4


class Tradewind:
    side = "ours"

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def start(self, command: Sequence[str], folder: Path) -> list["subprocess.Popen[bytes]"]:
        tradewind = str(Path(sys.executable).with_name("tradewind"))
        sizes = ["--workers", str(self._workers), "--min-workers", str(self._workers - 1)]
        return [start_logged([tradewind, "run", *sizes, *command], folder, "tradewind-run")]

    def one_worker(self, started: Sequence["subprocess.Popen[bytes]"]) -> list[int]:
        agents = [pid for pid in descendants(started[0].pid) if "tradewind worker" in command_line(pid)]
        if not agents:
            raise StackFailed("found no worker-agent below `tradewind run`")
        return [agents[-1], *descendants(agents[-1])]


def ours_restart_seconds(
    script: Path = SCRIPT, script_args: Sequence[str] = SCRIPT_ARGS, *, workers: int = _WORKERS, timeout_s: float = 120
) -> Round:
    return lose_one(Tradewind(workers), script, script_args, workers=workers, timeout_s=timeout_s)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{_NAME}", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")

    rounds: list[Round] = []
    for number in range(1, options.rounds + 1):
        for measure in (ours_restart_seconds, torchrun_peer.restart_seconds):
            rounds.append(measure(workers=_WORKERS))
            print(f"round {number} of {options.rounds}: {rounds[-1].summary()}", file=sys.stderr, flush=True)
    result = report.compare(
        _NAME,
        "s",
        ours=[done.restart_s for done in rounds if done.side == Tradewind.side],
        peer=[done.restart_s for done in rounds if done.side == torchrun_peer.Torchrun.side],
        target=_TARGET,
        rounds=[done.raw() for done in rounds],
    )
    return report.publish(result, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
