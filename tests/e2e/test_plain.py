"""A script without the SDK through a loss: restarted once for it, and again only when it has written a checkpoint."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.conftest import eventual_answer, eventually
from tests.e2e.terminal import Terminal
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import Run, lose_machine

BOUND_S = 120.0
SCRIPT = """
import os, pathlib, sys, time
import counted, tradewind
rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
print("start", os.environ["TRADEWIND_RESTART_COUNT"], "of", world, *sys.argv[1:], flush=True)
for step in range(10_000):
    tradewind.report(step)
    if pathlib.Path("end").exists():
        break
    if rank == "0" and pathlib.Path("save").exists():
        pathlib.Path("save").rename("checkpoint")
    time.sleep(0.05)
"""


def starts(run: Run) -> list[str]:
    """What rank 0 said of its starts."""
    return [match[1] for line in run.lines if (match := re.match(r"\[0\] start (.*)", line))]


@pytest.mark.slow
@pytest.mark.usefixtures("without_torch")
async def test_a_replacement_waits_for_a_checkpoint_and_restarts_are_told_apart(tmp_path: Path) -> None:
    mark = a_mark()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "counted.py").write_text(f"open({str(tmp_path / 'imports')!r}, 'a').write('x')\n")
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        terminal.environ["PYTHONPATH"] += f":{tmp_path / 'modules'}"
        launch = {
            "script": "train.py",
            "restart_args": ["--resume"],
            "checkpoint_path": "checkpoint",
            "preload": ["counted"],
        }
        job = ["name: plain", f"launch: {json.dumps(launch)}", "workers: {min: 1, max: 2, settle_s: 600}"]
        (tmp_path / "job.yaml").write_text("\n".join(job))
        await terminal.start_parts()
        run = Run(await terminal.start(".venv/bin/tradewind submit job.yaml --wait"), mark, tmp_path / "hold")
        tasks.create_task(run.read())
        await eventually(lambda: starts(run) == ["0 of 2"], BOUND_S, "two ranks train")
        lose_machine(run.workers()[0])
        await eventually(lambda: starts(run)[1:] == ["1 of 1"], BOUND_S, "one goes on, with no checkpoint to resume")
        await terminal.until_reported("plain", "began again at step 0 after a restart")
        waits = "1 worker waits to be admitted: at the next checkpoint"
        await eventual_answer(lambda: status(terminal), lambda shown: waits in shown, "the replacement waits")
        assert len(starts(run)) == 2
        (tmp_path / "save").touch()
        await eventually(lambda: starts(run)[2:] == ["2 of 2 --resume"], BOUND_S, "both go on from the checkpoint")
        (tmp_path / "end").touch()
        assert await run.end() == 0, "\n".join(run.lines)
    assert (tmp_path / "imports").read_text() == "xxx", "once for each worker"
    await nothing_is_left(mark)


async def status(terminal: Terminal) -> str:
    return " ".join((await terminal.run(".venv/bin/tradewind status plain")).split())
