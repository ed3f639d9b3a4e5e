"""Runs example scripts as a user would, or in forks that have imported torch, and returns their output."""

import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from benchmarks.processes import leaving_none
from runtime.children import free_port
from tests.forks import FORKS

EXAMPLES = Path(__file__).parents[2] / "examples"
_TIMEOUT_S = 120


def run_under_torchrun(script: Path, *arguments: object, ranks: int = 2) -> str:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return _run([*torchrun, str(script)], arguments)


def run_warm(script: Path, *arguments: object, ranks: int = 1, env: Mapping[str, str] | None = None) -> str:
    """In forks that have imported torch: alone, or with the variables that torchrun sets for several."""
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}", "WORLD_SIZE": f"{ranks}"} if ranks > 1 else {}
    with tempfile.TemporaryDirectory() as scratch:
        said = [Path(scratch, f"{rank}") for rank in range(ranks)]
        started = []
        for rank, file in enumerate(said):
            place = {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}"} if world else {}
            reported = [str(argument) for argument in arguments]
            started.append(
                FORKS.Process(target=_become, args=(script, reported, {**world, **place, **(env or {})}, file))
            )
        try:
            for process in started:
                process.start()
            for process in started:
                process.join(_TIMEOUT_S)
            printed = [file.read_text() for file in said]
            assert [process.exitcode for process in started] == [0] * ranks, printed
        finally:
            for process in started:
                process.kill()
    return "".join(printed)


def _become(script: Path, arguments: list[str], env: Mapping[str, str], file: Path) -> None:
    os.environ.update(env)
    torch.set_num_threads(1)
    sys.argv = [str(script), *arguments]
    with file.open("w") as printed, redirect_stdout(printed), redirect_stderr(printed):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except BaseException:
            traceback.print_exc()
            raise


def _run(command: list[str], arguments: tuple[object, ...]) -> str:
    with tempfile.TemporaryDirectory() as scratch, leaving_none():
        done = subprocess.run(
            [*command, *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": scratch},
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
