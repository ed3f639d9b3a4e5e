"""Whole runs of an unmodified torchrun script through lost machines, a lost bus and a lost master."""

import asyncio
import os
import signal
from pathlib import Path

from benchmarks import trace
from tests.conftest import eventually
from tests.e2e.plain_nats import Seen, listen
from tests.e2e.terminal import PARTS, Terminal
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import BOUND_S, HELD, Run, a_run, lose_machine

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp_checkpoint" / "train.py"

STEPS_WITHOUT_A_BUS = 100
"""6 s at least: longer than `suspect_s`, after which a silent worker counts as lost."""


def newest_step(folder: Path) -> int:
    """What the trainers themselves traced: without a bus, no process reports it."""
    return max((step.step for step in trace.read(folder / "steps")), default=-1)


SAVE_EVERY = 10
"""Steps between two snapshots of the script."""


async def a_plain_run(terminal: Terminal, mark: dict[str, str], *, workers: str, steps: int) -> Run:
    arguments = (
        "--steps",
        f"{steps}",
        "--step-ms",
        "60",
        "--save-every",
        f"{SAVE_EVERY}",
        "--snapshot",
        "snapshot.pt",
        "--trace",
        "steps",
    )
    return await a_run(terminal, mark, HELD, str(SCRIPT), *arguments, name="plain", workers=workers)


async def test_a_torchrun_script_goes_through_a_lost_machine_a_notice_and_two_joins_in_plain_sight(
    tmp_path: Path,
) -> None:
    mark = a_mark()
    seen: Seen = []
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_plain_run(terminal, mark, workers="{min: 1, max: 3, settle_s: 0}", steps=800)
        tasks.create_task(run.read())
        watching = tasks.create_task(listen(terminal.nats_url, seen))
        await run.until("three ranks train and have written a snapshot", world=3, step=2 * SAVE_EVERY)
        lost, noticed, *_ = run.workers()
        lose_machine(lost)
        await run.until("two ranks go on", world=2)
        os.kill(noticed, signal.SIGTERM)
        await run.until("two new workers have joined", world=3, after=len(run.steps))
        run.let_go()
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
        run = await a_plain_run(terminal, mark, workers="{min: 2, max: 2}", steps=800)
        tasks.create_task(run.read())
        await run.until("two ranks train", world=2)
        bus, master, _ = terminal.background
        bus.kill()
        before = newest_step(tmp_path)
        await eventually(lambda: newest_step(tmp_path) > before + STEPS_WITHOUT_A_BUS, BOUND_S, "training goes on")
        await terminal.run(PARTS[0])
        await run.until_more_steps("lines come through again")
        master.kill()
        await terminal.run(PARTS[1])
        await run.until_more_steps("lines come through the next master")
        run.let_go()
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    assert run.steps == [(step, 2) for step in range(800)], "each step once, in one world, and no line lost"
    await nothing_is_left(mark)
