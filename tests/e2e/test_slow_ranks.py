"""A rank that is slow is waited for; one that never comes is removed, with its stack, and the others continue."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.e2e.terminal import Terminal
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import BOUND_S, a_run

SCRIPT = Path(__file__).with_name("slow_script.py")
PROVEN = "0 lost, 0 repeated"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("what", "rules"), [("evaluate", ()), ("pause", ("timeouts: {stall_s: 1}",))])
async def test_an_evaluation_on_rank_0_changes_no_world(tmp_path: Path, what: str, rules: tuple[str, ...]) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_run(terminal, mark, SCRIPT, what, "30", name="slow", workers="{min: 2, max: 2}", rules=rules)
        tasks.create_task(run.read())
        run.let_go()
        if what == "pause":
            await run.until("both train", world=2)
            await _until_shown(terminal, "rank 0: evaluating for")
        code = await run.end()
        reported = await terminal.run(".venv/bin/tradewind events slow")
    assert code == 0, "\n".join(run.lines)
    ends = [line for line in run.lines if "] generation " in line]
    assert len(ends) == 2 and all("] generation 1: " in line and PROVEN in line for line in ends), ends
    assert "is over" not in reported
    await nothing_is_left(mark)


async def _until_shown(terminal: Terminal, text: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while text not in await terminal.run(".venv/bin/tradewind status slow"):
            pass


async def test_a_rank_that_never_comes_back_is_one_failure_and_the_other_continues(tmp_path: Path) -> None:
    mark = a_mark()
    rules = ("failures: {max: 1}", "timeouts: {stall_s: 2}")
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_run(terminal, mark, SCRIPT, "hang", "300", name="hung", workers="{min: 1, max: 2}", rules=rules)
        tasks.create_task(run.read())
        await run.until("both train", world=2)
        await eventually((tmp_path / "hung").exists, BOUND_S, "one of them hangs")
        await run.until("the other continues alone", world=1, after=len(run.steps))
        await run.until("another trainer has joined", world=2, after=len(run.steps))
        run.let_go()
        code = await run.end()
        reported = await terminal.run(".venv/bin/tradewind events hung")
        view = json.loads(await terminal.run(".venv/bin/tradewind status hung --json"))
    assert code == 0, "\n".join(run.lines)
    assert (view["failures"], view.get("losses", 0)) == (1, 0), reported
    assert len(re.findall(r"rank 1 on worker \S+ is stalled: it has not entered the all-reduce", reported)) == 1, (
        reported
    )
    assert "never_comes_back" in reported and "slow_script.py" in reported
    assert PROVEN in run.lines[-1]
    await nothing_is_left(mark)
