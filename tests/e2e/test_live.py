"""Whole runs of an SDK script: machines come and go, the bus and the master too, and no trainer is started again."""

import asyncio
import json
import os
import re
import shutil
import signal
from pathlib import Path

from tests.conftest import eventually
from tests.e2e.terminal import PARTS, Terminal
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import BOUND_S, Run, a_run, lose_machine

SCRIPT = Path(__file__).with_name("sdk_script.py")
STEPS = 400
PROVEN = "400 steps, 9,600 samples: 0 lost, 0 repeated; weights"


async def a_live_run(terminal: Terminal, mark: dict[str, str], *, workers: str) -> Run:
    traced = {"TRADEWIND_TRACE": str(terminal.folder / "trace")}
    return await a_run(terminal, mark, SCRIPT, str(STEPS), name="live", workers=workers, env=traced)


def proofs(run: Run) -> list[str]:
    """What each rank printed at its end."""
    return [match[1] for line in run.lines if (match := re.match(r"\[\d+\] (.*weights .*)", line))]


def newest_step(folder: Path) -> int:
    """As the trainers themselves wrote it down: without a master nobody hears of it."""
    lines = [line for file in (folder / "trace").glob("*.jsonl") for line in file.read_text().splitlines()]
    return max((int(json.loads(line)["step"]) for line in lines if line.endswith("}")), default=-1)


async def test_machines_come_and_go_and_no_step_is_lost_or_taken_twice(tmp_path: Path) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_live_run(terminal, mark, workers="{min: 1, max: 3}")
        tasks.create_task(run.read())
        await run.until("three ranks train", world=3)
        lost, noticed, *_ = run.workers()
        lose_machine(lost)
        await run.until("two ranks go on", world=2)
        await run.until("a new worker has joined", world=3, after=len(run.steps))
        os.kill(noticed, signal.SIGTERM)
        await run.until("it is handed over", world=2, after=len(run.steps))
        await run.until("another worker has joined", world=3, after=len(run.steps))
        run.let_go()
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    reported = proofs(run)
    assert len(reported) == 3 and len(set(reported)) == 1, reported
    assert reported[0].startswith(PROVEN)
    end = f"tradewind: job live succeeded: all 3 ranks exited with 0; certificate: {PROVEN.removesuffix('; weights')}"
    assert run.lines[-1] == end
    await nothing_is_left(mark)


async def test_the_only_worker_goes_when_its_replacement_has_the_state(tmp_path: Path) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_live_run(terminal, mark, workers="{min: 1, max: 1}")
        tasks.create_task(run.read())
        await run.until_more_steps("it trains")
        os.kill(run.workers()[0], signal.SIGTERM)
        await run.until("both train", world=2)
        await run.until("the other goes on alone", world=1, after=len(run.steps))
        run.let_go()
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    steps = [step for step, _ in run.steps]
    assert steps == sorted(set(steps)), "no step is taken back"
    assert proofs(run)[-1].startswith(PROVEN)
    await nothing_is_left(mark)


async def test_training_continues_without_a_master_and_heals_when_it_is_back(tmp_path: Path) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_live_run(terminal, mark, workers="{min: 1, max: 2}")
        tasks.create_task(run.read())
        await run.until("two ranks train", world=2)
        _, master, _ = terminal.background
        master.kill()
        before = newest_step(tmp_path)
        await eventually(lambda: newest_step(tmp_path) > before + 5, BOUND_S, "training goes on without a master")
        lose_machine(run.workers()[0])
        await terminal.run(PARTS[1])
        await run.until("the other goes on alone", world=1)
        await run.until("a new worker has joined", world=2, after=len(run.steps))
        run.let_go()
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    assert proofs(run)[0].startswith(PROVEN)
    await nothing_is_left(mark)


async def test_a_bus_that_lost_its_data_gets_the_job_back_and_its_workers_obey_the_next_leader(tmp_path: Path) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_live_run(terminal, mark, workers="{min: 1, max: 2}")
        tasks.create_task(run.read())
        await run.until("two ranks train", world=2)
        bus, _, _ = terminal.background
        bus.kill()
        await bus.wait()
        shutil.rmtree(terminal.folder / "nats")
        await terminal.run(PARTS[0])
        lose_machine(run.workers()[0])
        await run.until("the other goes on alone", world=1)
        run.let_go()
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    assert proofs(run)[0].startswith(PROVEN)
    await nothing_is_left(mark)
