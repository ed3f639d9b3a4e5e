"""Whole runs of an unmodified torchrun script through lost machines, a lost bus and a lost master."""

import asyncio
import os
import re
import signal
from pathlib import Path

from runtime.children import descendants
from runtime.nats_server import NatsServer
from tests.cli.command import started
from tests.conftest import eventually
from tests.e2e.plain_nats import Seen, listen
from tests.e2e.traces import a_mark, carriers, nothing_is_left

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp_checkpoint" / "train.py"
BOUND_S = 240.0


class Run:
    """A `tradewind run` that is watched while it goes on."""

    def __init__(self, process: asyncio.subprocess.Process, mark: dict[str, str]) -> None:
        self.process = process
        self.mark = mark
        self.out: list[str] = []
        self.err: list[str] = []

    async def read(self) -> None:
        async def gather(stream: asyncio.StreamReader | None, lines: list[str]) -> None:
            assert stream is not None
            while line := await stream.readline():
                lines.append(line.decode().rstrip("\n"))

        await asyncio.gather(gather(self.process.stdout, self.out), gather(self.process.stderr, self.err))

    @property
    def steps(self) -> list[tuple[int, int]]:
        """(step, size of the world) as rank 0 printed them."""
        found = (re.match(r"\[0\] step (\d+) loss \S+ world (\d+)", line) for line in self.out)
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


async def a_run(folder: Path, server: NatsServer, *options: str, steps: int) -> Run:
    mark = a_mark()
    arguments = (
        "--steps",
        f"{steps}",
        "--step-ms",
        "60",
        "--save-every",
        "10",
        "--snapshot",
        str(folder / "snapshot.pt"),
    )
    environ = {**mark, "TRADEWIND_NATS_URL": server.url, "OMP_NUM_THREADS": "1"}
    return Run(await started("run", *options, str(SCRIPT), *arguments, environ=environ, cwd=folder), mark)


def lose_machine(pid: int) -> None:
    for victim in (pid, *descendants(pid)):
        os.kill(victim, signal.SIGKILL)


async def test_a_torchrun_script_goes_through_a_lost_machine_a_notice_and_two_joins_in_plain_sight(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    run = await a_run(tmp_path, nats_server, "--workers", "3", "--min-workers", "1", steps=300)
    seen: Seen = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run.read())
        watching = tasks.create_task(listen(nats_server.url, seen))
        await run.until("three ranks train", world=3)
        doomed, noticed, *_ = run.pids("tradewind", "worker")
        lose_machine(doomed)
        await run.until("two ranks go on", world=2)
        os.kill(noticed, signal.SIGTERM)
        await run.until("two new workers have joined", world=3, after=len(run.steps))
        code = await run.end()
        watching.cancel()
    assert code == 0, "\n".join(run.err)
    assert {step for step, _ in run.steps} == set(range(300))
    assert any("resumes from the snapshot" in line for line in run.out)
    assert not any("failure" in line for line in run.err), "preemptions are no failures"
    kinds = {str(message["kind"]) for _, message in seen}
    assert kinds >= {
        *("cluster.heartbeat", "cluster.keep_workers", "worker.heartbeat", "worker.joined", "worker.ready"),
        *("worker.parked", "worker.exited", "worker.notice", "worker.left"),
        *("job.assignment", "job.halt", "job.release", "job.log", "event"),
    }
    generations = [message["generation"] for _, message in seen if message["kind"] == "job.assignment"]
    assert generations == sorted(generations, key=lambda generation: int(str(generation)))
    await nothing_is_left(run.mark)


async def test_a_lost_bus_and_a_lost_master_disturb_nobody_and_lose_nothing(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    run = await a_run(tmp_path, nats_server, "--workers", "2", steps=400)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run.read())
        await run.until("two ranks train", world=2)
        await nats_server.kill()
        await asyncio.sleep(10.0)
        await nats_server.start()
        before = len(run.steps)
        await eventually(lambda: len(run.steps) > before, BOUND_S, "lines come through again")
        (master,) = run.pids("tradewind", "master")
        os.kill(master, signal.SIGKILL)
        await eventually(lambda: run.pids("tradewind", "master") not in ([], [master]), BOUND_S, "another master")
        code = await run.end()
    assert code == 0, "\n".join(run.err)
    assert run.steps == [(step, 2) for step in range(400)], "each step once, in one world, and no line lost"
    assert sum("is running with" in line for line in run.err) == 1
    await nothing_is_left(run.mark)
