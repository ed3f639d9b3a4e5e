"""Whole runs of an unmodified torchrun script through lost machines, a lost bus and a lost master."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path

from runtime.children import descendants
from tests.conftest import eventually
from tests.e2e.plain_nats import Seen, listen
from tests.e2e.terminal import PARTS, Terminal
from tests.e2e.traces import a_mark, carriers, nothing_is_left

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp_checkpoint" / "train.py"
BOUND_S = 240.0


class Run:
    """`tradewind submit --wait` that is watched while it goes on, on parts that were started by hand."""

    def __init__(self, process: asyncio.subprocess.Process, mark: dict[str, str]) -> None:
        self.process = process
        self.mark = mark
        self.lines: list[str] = []

    async def read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(line.decode().rstrip("\n"))

    @property
    def steps(self) -> list[tuple[int, int]]:
        """(step, size of the world) as rank 0 printed them."""
        found = (re.match(r"\[0\] step (\d+) loss \S+ world (\d+)", line) for line in self.lines)
        return [(int(match[1]), int(match[2])) for match in found if match]

    async def until(self, what: str, *, world: int, after: int = 0) -> None:
        await eventually(lambda: any(size == world for _, size in self.steps[after:]), BOUND_S, what)

    def pids(self, *words: str) -> list[int]:
        """Processes of this run whose command line has all these words."""
        return [pid for pid in carriers(self.mark) if all(word in _command(pid) for word in words)]

    async def end(self) -> int:
        async with asyncio.timeout(BOUND_S):
            return await self.process.wait()


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


async def a_run(terminal: Terminal, mark: dict[str, str], *, workers: str, steps: int) -> Run:
    arguments = ["--steps", f"{steps}", "--step-ms", "60", "--save-every", "10", "--snapshot", "snapshot.pt"]
    job = [
        "name: plain",
        f"launch: {{script: {SCRIPT}, args: {json.dumps(arguments)}, env: {{OMP_NUM_THREADS: '1'}}}}",
        f"workers: {workers}",
        "failures: {max: 0}",
    ]
    (terminal.folder / "job.yaml").write_text("\n".join(job))
    await terminal.start_parts()
    return Run(await terminal.start(".venv/bin/tradewind submit job.yaml --wait"), mark)


def lose_machine(pid: int) -> None:
    for victim in (pid, *descendants(pid)):
        os.kill(victim, signal.SIGKILL)


async def test_a_torchrun_script_goes_through_a_lost_machine_a_notice_and_two_joins_in_plain_sight(
    tmp_path: Path,
) -> None:
    mark = a_mark()
    seen: Seen = []
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_run(terminal, mark, workers="{min: 1, max: 3}", steps=800)
        tasks.create_task(run.read())
        watching = tasks.create_task(listen(terminal.nats_url, seen))
        await run.until("three ranks train", world=3)
        doomed, noticed, *_ = run.pids("tradewind", "worker")
        lose_machine(doomed)
        await run.until("two ranks go on", world=2)
        os.kill(noticed, signal.SIGTERM)
        await run.until("two new workers have joined", world=3, after=len(run.steps))
        code = await run.end()
        watching.cancel()
    assert code == 0, "\n".join(run.lines)
    assert {step for step, _ in run.steps} == set(range(800))
    assert any("resumes from the snapshot" in line for line in run.lines)
    kinds = {str(message["kind"]) for _, message in seen}
    assert kinds >= {
        *("cluster.heartbeat", "cluster.keep_workers", "worker.heartbeat", "worker.joined", "worker.ready"),
        *("worker.parked", "worker.exited", "worker.notice", "worker.left"),
        *("job.assignment", "job.halt", "job.release", "job.log", "event"),
    }
    generations = [int(str(message["generation"])) for _, message in seen if message["kind"] == "job.assignment"]
    assert generations == sorted(generations)
    await nothing_is_left(mark)


async def test_a_lost_bus_and_a_lost_master_disturb_nobody_and_lose_nothing(tmp_path: Path) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_run(terminal, mark, workers="{min: 2, max: 2}", steps=400)
        tasks.create_task(run.read())
        await run.until("two ranks train", world=2)
        bus, master, _ = terminal.background
        bus.kill()
        await asyncio.sleep(10.0)
        await terminal.run(PARTS[0])
        before = len(run.steps)
        await eventually(lambda: len(run.steps) > before, BOUND_S, "lines come through again")
        master.kill()
        await terminal.run(PARTS[1])
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    assert run.steps == [(step, 2) for step in range(400)], "each step once, in one world, and no line lost"
    await nothing_is_left(mark)
