"""A job of two dozen real workers loses some of them, twice. All train again each time, and no other worker is lost."""

import asyncio
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventual_answer, eventually
from tests.e2e.terminal import Terminal
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import Run, lose_machine

WORKERS = 24
BOUND_S = 240.0
SCRIPT = """
import os, pathlib, time
import tradewind
print("start of", os.environ["WORLD_SIZE"], flush=True)
for step in range(100_000):
    tradewind.report(step)
    if pathlib.Path("end").exists():
        break
    time.sleep(0.2)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("without_torch")
async def test_two_dozen_workers_go_through_losses_and_joins(tmp_path: Path) -> None:
    mark = a_mark()
    (tmp_path / "train.py").write_text(SCRIPT)
    job = ["name: many", f"launch: {json.dumps({'script': 'train.py'})}"]
    job.append(f"workers: {{min: 16, max: {WORKERS}, settle_s: 0}}")
    (tmp_path / "job.yaml").write_text("\n".join(job))
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        await terminal.start_parts()
        run = Run(await terminal.start(".venv/bin/tradewind submit job.yaml --wait"), mark, tmp_path / "hold")
        tasks.create_task(run.read())
        await eventually(lambda: f"start of {WORKERS}" in starts(run), BOUND_S, "all of them train")
        lost = 0
        for together in (1, 3):
            before = len(starts(run))
            for lost_worker in run.workers()[:together]:
                lose_machine(lost_worker)
            lost += together
            await eventually(partial(has_started_since, run, before), BOUND_S, "the others train")
            await eventually(lambda: starts(run)[-1] == f"start of {WORKERS}", BOUND_S, "all of them train again")
        shown = await eventual_answer(
            lambda: status(terminal), lambda shown: shown["phase"] == "running", "it runs", BOUND_S
        )
        assert (shown["losses"], shown["failures"], shown["workers_total"]) == (lost, 0, WORKERS)
        assert sorted(rank for worker in shown["workers"] for rank in worker["ranks"]) == list(range(WORKERS))
        (tmp_path / "end").touch()
        assert await run.end() == 0, "\n".join(run.lines)
    await nothing_is_left(mark)


def has_started_since(run: Run, before: int) -> bool:
    return len(starts(run)) > before


def starts(run: Run) -> list[str]:
    """The lines that rank 0 has printed, one at each start: `start of` and the number of ranks."""
    return [match[1] for line in run.lines if (match := re.match(r"\[0\] (start of .*)", line))]


async def status(terminal: Terminal) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(await terminal.run(".venv/bin/tradewind status many --json"))
    return shown
