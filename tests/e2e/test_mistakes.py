"""What a user gets to see when a script is wrong, hangs, or its name is taken."""

from pathlib import Path

from tests.e2e.terminal import Terminal
from tests.e2e.traces import a_mark, nothing_is_left

ONE_NEVER_COMES = """
import os, time
import torch.distributed as dist

if os.environ["RANK"] == "1":
    time.sleep(600)
dist.init_process_group("gloo")
"""
FAILS_AT_ONCE = """
raise ValueError("the data is not there")
"""
ONE_RANK_FAILS = """
import torch
from torch.utils.data import TensorDataset

import tradewind

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = tradewind.Run(model, optimizer, TensorDataset(torch.ones(8, 4)), batch=4, steps=200)
for (inputs,) in run:
    if run.step == 5 and run.rank == 1:
        raise ValueError("a bug in the loop")
    run.backward(model(inputs).mean())
"""


def a_job(folder: Path, name: str, script: str, **more: str) -> str:
    (folder / f"{name}.py").write_text(script)
    lines = [f"name: {name}", f"launch: {{script: {name}.py}}", *(f"{key}: {value}" for key, value in more.items())]
    (folder / f"{name}.yaml").write_text("\n".join(lines))
    return f"{name}.yaml"


async def test_mistakes_are_told_in_words(tmp_path: Path) -> None:
    mark = a_mark()
    async with Terminal(tmp_path, mark) as terminal:
        await terminal.start_parts()

        waits = a_job(tmp_path, "waits", ONE_NEVER_COMES, workers="{min: 2, max: 2}", timeouts="{meet_s: 1}")
        await terminal.run(f".venv/bin/tradewind submit {waits}")
        taken = await terminal.run(f".venv/bin/tradewind submit {waits}", code=2)
        assert "waits" in taken
        assert "Traceback" not in taken
        await terminal.until_reported("waits", "rank 0 waits for rank 1")
        assert "rank 0 waits for rank 1" in await terminal.run(".venv/bin/tradewind events waits")
        await terminal.run(".venv/bin/tradewind stop waits")
        await terminal.until_phase("waits", "stopped")

        fails = a_job(tmp_path, "fails", FAILS_AT_ONCE, failures="{max: 0}")
        said = await terminal.run(f".venv/bin/tradewind submit {fails} --wait", code=1)
        assert "rank 0 exited with 1" in said
        assert "ValueError: the data is not there" in said

        one = a_job(tmp_path, "one", ONE_RANK_FAILS, workers="{min: 2, max: 2}", failures="{max: 0}")
        said = await terminal.run(f".venv/bin/tradewind submit {one} --wait", code=1)
        assert "rank 1 exited with 1" in said
        assert "ValueError: a bug in the loop" in said

        (tmp_path / "gone.yaml").write_text("name: gone\nlaunch: {script: nowhere.py}\nfailures: {max: 0}\n")
        said = await terminal.run(".venv/bin/tradewind submit gone.yaml --wait", code=2)
        assert "nowhere.py" in said
        assert "Traceback" not in said
    await nothing_is_left(mark)
