"""run.stop(): called on one rank, all ranks end after the same step, whatever happens to the world meanwhile."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torch.optim import SGD

from tests.sdk.live_job import LiveJob, results
from tests.sdk.test_cases import a_model, a_run, end_threads, error_of
from tests.sdk.test_faults import dies
from tests.sdk.test_run import check
from tests.sdk.trainee import Recipe
from tradewind.sdk.stopping import ends_early

__all__ = ["end_threads"]
STOPS_IN = 5
DONE = STOPS_IN + 1


def recipe_of(folder: Path, steps: int = 16) -> Recipe:
    return Recipe(str(folder), steps=steps, stops_in=STOPS_IN, checkpoints=True, checkpoint_every=100)


def ended_early(folder: Path, recipe: Recipe, finishers: int) -> None:
    """Checks that all ranks ended after the step of the stop, with one state, a certificate and a checkpoint."""
    check(folder, replace(recipe, steps=DONE), finishers=finishers)
    assert [path.name for path in (folder / "checkpoints").glob("*.pt")] == [f"step-{DONE:012d}.pt"]


@pytest.mark.parametrize("repaired", [False, True], ids=["undisturbed", "somebody dies in that step"])
async def test_all_ranks_end_after_the_step_in_which_one_of_them_asked(tmp_path: Path, repaired: bool) -> None:
    recipe = recipe_of(tmp_path)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3, [{}, {}, dies(f"2:{STOPS_IN}:in_all_reduce") if repaired else {}])
        await job.wait_finished()
        assert all(trainer.has_finished() for trainer in job.trainers[:2])
    ended_early(tmp_path, recipe, finishers=2 if repaired else 3)


@pytest.mark.slow
async def test_a_run_that_stopped_trains_on_when_it_is_started_again(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    for _ in range(2):
        async with LiveJob(tmp_path, recipe) as job:
            await job.start(2)
            await job.wait_finished()
    assert sorted(each["certificate"]["steps"] for each in results(tmp_path)) == [DONE, DONE, 16, 16]


@pytest.mark.slow
async def test_a_stop_of_a_rank_that_died_before_the_end_of_the_step_is_lost(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3, [{}, dies(f"1:{STOPS_IN}:before_all_reduce"), {}])
        await job.wait_finished()
    check(tmp_path, recipe, finishers=2)


@pytest.mark.slow
async def test_one_that_missed_the_step_ends_with_the_others(tmp_path: Path) -> None:
    recipe = replace(recipe_of(tmp_path), misses_all_reduce_of=STOPS_IN)
    async with LiveJob(tmp_path, recipe) as job:
        await job.start(3)
        await job.wait_finished()
        assert job.worlds[1:] == [("repair", 3)]
    ended_early(tmp_path, recipe, finishers=3)


async def test_one_that_is_joining_gets_the_state_and_ends_with_the_others(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    async with LiveJob(tmp_path, recipe) as job:
        job.hold_before(STOPS_IN)
        await job.start(2)
        await job.enlarge({})
        await job.wait_held()
        await job.wait_all_prepared()
        job.hold_before(None)
        await job.wait_finished()
    ended_early(tmp_path, recipe, finishers=3)


def test_alone_it_ends_after_the_step_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = a_model()
    run = a_run(model, SGD(model.parameters(), 0.1), steps=100, checkpoints=tmp_path)
    for inputs, targets in run:
        if run.step == 3:
            run.stop()
        run.backward(error_of(model)(inputs, targets))
    assert (run.step, run.certificate.steps, run.certificate.holds) == (4, 4, True)
    assert [path.name for path in tmp_path.glob("*.pt")] == ["step-000000000004.pt"]
    assert capsys.readouterr().err == f"tradewind: {ends_early(4)}\n"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["break", "raise ValueError"])
def test_a_loop_that_is_left_by_break_prints_what_to_do_instead(tmp_path: Path, way: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(LEAVES.format(way=way))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*torchrun, script], capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.stderr.count("run.stop()") == (2 if way == "break" else 0)
    assert (ended.returncode == 0) == (way == "break")


LEAVES = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
import tradewind

inputs = torch.randn(40, 4)
model = nn.Linear(4, 1)
run = tradewind.Run(model, torch.optim.SGD(model.parameters(), 0.1), TensorDataset(inputs), batch=8, steps=20)
for (inputs,) in run:
    run.backward(model(inputs).mean())
    if run.step == 3:
        {way}
"""
