"""A running job is given other code: some that cannot join it, then some that can, and it trains on all the time."""

import asyncio
from pathlib import Path

from tests.e2e.terminal import Terminal
from tests.e2e.test_live import PROVEN, STEPS, proofs
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import a_run
from tradewind.cli.reload import reload_text

CODE = Path(__file__).with_name("sdk_script.py").read_text()
ANOTHER_MODEL = CODE.replace("32", "33")
RENEWED = CODE.replace("weights {weights", "renewed code, weights {weights")


async def test_code_is_taken_again_by_a_job_that_trains_on(tmp_path: Path) -> None:
    mark, script = a_mark(), tmp_path / "train.py"
    script.write_text(CODE)
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_run(terminal, mark, script, str(STEPS), name="live", workers="{min: 1, max: 2}")
        tasks.create_task(run.read())
        await run.until("two ranks train", world=2)
        await terminal.run(".venv/bin/tradewind scale live 1")
        said = await terminal.run(".venv/bin/tradewind reload live", code=2)
        assert "'live'" in said and "tradewind scale live 2" in said
        await terminal.run(".venv/bin/tradewind scale live 2")
        await run.until("two ranks train", world=2, after=len(run.steps))
        script.write_text(ANOTHER_MODEL)
        said = await terminal.run(".venv/bin/tradewind reload live")
        assert reload_text("live", 2) in said
        await terminal.until_reported("live", "model is 4 tensors of 365 numbers")
        await run.until_more_steps("the other trains on with the code that works")
        script.write_text(RENEWED)
        await terminal.until_reported("live", "no worker runs the old code")
        await run.until("both ranks train", world=2, after=len(run.steps))
        run.let_go()
        code = await run.end()
    assert code == 0, "\n".join(run.lines)
    reported = proofs(run)
    assert len(reported) == 2 and len(set(reported)) == 1, reported
    assert reported[0].startswith(PROVEN.replace("weights", "renewed code, weights"))
    await nothing_is_left(mark)
