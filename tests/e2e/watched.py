"""A job that is watched while it runs, on parts that were started by hand, and the machines that are taken from it."""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.children import descendants
from tests.conftest import eventually
from tests.e2e.terminal import Terminal
from tests.e2e.traces import carriers

BOUND_S = 240.0
HELD = Path(__file__).with_name("held.py")


class Run:
    """`tradewind submit --wait`, and what rank 0 says of its steps. They take their time until they are let go."""

    def __init__(self, process: asyncio.subprocess.Process, mark: dict[str, str], hold: Path) -> None:
        self.process = process
        self.mark = mark
        self.lines: list[str] = []
        self._hold = hold

    async def read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(line.decode().rstrip("\n"))

    @property
    def steps(self) -> list[tuple[int, int]]:
        """(step, size of the world) as rank 0 printed them."""
        found = (re.match(r"\[0\] step (\d+) loss \S+ world (\d+)", line) for line in self.lines)
        return [(int(match[1]), int(match[2])) for match in found if match]

    async def until(self, what: str, *, world: int, after: int = 0, step: int = 0) -> None:
        """Waits until a world of this size has taken a step, not before `step`, after the first `after` ones."""

        def has_stepped() -> bool:
            return any(size == world and taken >= step for taken, size in self.steps[after:])

        await eventually(has_stepped, BOUND_S, what)

    async def until_more_steps(self, what: str) -> None:
        """More than can have been on their way."""
        enough = len(self.steps) + 10
        await eventually(lambda: len(self.steps) > enough, BOUND_S, what)

    def workers(self) -> list[int]:
        """The processes of its worker-agents."""
        return [pid for pid in carriers(self.mark) if {"tradewind", "worker"} <= set(_command(pid))]

    def let_go(self) -> None:
        self._hold.unlink()

    async def end(self) -> int:
        async with asyncio.timeout(BOUND_S):
            return await self.process.wait()


async def a_run(
    terminal: Terminal,
    mark: dict[str, str],
    script: Path,
    *arguments: str,
    name: str,
    workers: str,
    env: Mapping[str, str] | None = None,
    rules: Sequence[str] = ("failures: {max: 0}",),
) -> Run:
    """The script is given the file that holds it, and these arguments."""
    hold = terminal.folder / "hold"
    hold.touch()
    launch = {
        "script": str(script),
        "args": [str(hold), *arguments],
        "env": {"OMP_NUM_THREADS": "1", **(env or {})},
    }
    job = [f"name: {name}", f"launch: {json.dumps(launch)}", f"workers: {workers}", *rules]
    (terminal.folder / "job.yaml").write_text("\n".join(job))
    await terminal.start_parts()
    return Run(await terminal.start(".venv/bin/tradewind submit job.yaml --wait"), mark, hold)


def lose_machine(pid: int) -> None:
    for victim in (pid, *descendants(pid)):
        with contextlib.suppress(ProcessLookupError):  # some go with others
            os.kill(victim, signal.SIGKILL)


def _command(pid: int) -> Sequence[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ()
