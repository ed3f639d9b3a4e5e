"""Starts example scripts as a user would, and gives what they printed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.processes import leaving_none

EXAMPLES = Path(__file__).parents[2] / "examples"
_TIMEOUT_S = 120


def run_alone(script: Path, *arguments: object, env: Mapping[str, str] | None = None) -> str:
    return _run([sys.executable, str(script)], arguments, env)


def run_under_torchrun(script: Path, *arguments: object, ranks: int = 2) -> str:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return _run([*torchrun, str(script)], arguments, None)


def _run(command: list[str], arguments: tuple[object, ...], env: Mapping[str, str] | None) -> str:
    with tempfile.TemporaryDirectory() as scratch, leaving_none():
        done = subprocess.run(
            [*command, *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": scratch, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(printed: str) -> dict[int, float]:
    """By step, from lines such as `step 12 loss 0.1234 world 4`."""
    lines = [line.split() for line in printed.splitlines() if line.startswith("step ")]
    return {int(line[1]): float(line[3]) for line in lines}
