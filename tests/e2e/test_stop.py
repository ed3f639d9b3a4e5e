"""Runs that end before their last step: a person stops them, their script does, or their loss is not finite."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.cli.command import finished, started
from tests.e2e.traces import a_mark, nothing_is_left

pytestmark = pytest.mark.slow
RUN_S = 180.0
SCRIPT = """
import sys, time
import torch
from torch import nn
from torch.utils.data import TensorDataset
import tradewind

inputs = torch.randn(400, 4)
model = nn.Linear(4, 1)
run = tradewind.Run(
    model, torch.optim.SGD(model.parameters(), 0.1), TensorDataset(inputs), batch=8, steps=5000,
    checkpoints="kept", checkpoint_every=1000,
)
for (inputs,) in run:
    loss = model(inputs).square().mean()
    if run.step == 5:
        {what}
    run.backward(loss)
print("ended with", run.certificate.message(), flush=True)
"""
EVALUATES = """
        if run.rank == 0:
            print("evaluates", flush=True)
            time.sleep(9)"""
STOPS = """
        if run.rank == 1:
            run.stop()"""
DIVERGES = """
        loss = loss * (float("nan") if run.rank == 1 else 1.0)"""


def a_script(folder: Path, what: str) -> str:
    (folder / "train.py").write_text(SCRIPT.format(what=what.strip()))
    return "train.py"


def kept(folder: Path) -> list[str]:
    return [path.name for path in (folder / "kept").glob("*.pt")]


async def test_a_run_that_is_stopped_in_a_long_evaluation_saves_and_says_where(tmp_path: Path) -> None:
    mark = a_mark()
    process = await started("run", "--workers", "2", a_script(tmp_path, EVALUATES), environ=mark, cwd=tmp_path)
    assert process.stdout is not None
    async with asyncio.timeout(RUN_S):
        assert b"evaluates" in await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    done = await finished(process, RUN_S)
    assert done.code == 130, done.err
    assert done.says("tradewind: ", "stopping", "30 s")
    assert f"Checkpoint of step 5 written to {tmp_path / 'kept'}." in done.err, done.err
    assert kept(tmp_path) == ["step-000000000005.pt"]
    await nothing_is_left(mark)


async def test_a_run_that_its_script_stops_succeeds_on_all_ranks(tmp_path: Path) -> None:
    mark = a_mark()
    process = await started("run", "--workers", "3", a_script(tmp_path, STOPS), environ=mark, cwd=tmp_path)
    done = await finished(process, RUN_S)
    assert done.code == 0, done.err
    assert done.out.count("ended with 6 steps, 48 samples: 0 lost, 0 repeated") == 3
    assert kept(tmp_path) == ["step-000000000006.pt"]
    await nothing_is_left(mark)


async def test_a_run_that_diverges_fails_and_names_rank_and_step(tmp_path: Path) -> None:
    mark = a_mark()
    process = await started("run", "--workers", "2", a_script(tmp_path, DIVERGES), environ=mark, cwd=tmp_path)
    done = await finished(process, RUN_S)
    assert done.code != 0
    assert "step 5: the loss of rank 1 is not finite (NaN or infinite)" in done.err, done.err
    await nothing_is_left(mark)
