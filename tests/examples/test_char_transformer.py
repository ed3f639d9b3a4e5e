"""The transformer learns, alone or in company, and goes on from its checkpoint as if it had never stopped."""

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.running import EXAMPLES, losses, run_alone, run_under_torchrun

SCRIPT = EXAMPLES / "char_transformer" / "train.py"
STEPS = 6


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def checkpoint_in(folder: Path) -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(folder / "checkpoint.pt", weights_only=True)
    return checkpoint


@pytest.fixture(scope="module")
def alone() -> dict[int, float]:
    """The losses of an uninterrupted run of one rank."""
    return losses(run_alone(SCRIPT, "--steps", STEPS))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, float]]:
    """The checkpoint and the losses of an uninterrupted run of two ranks."""
    folder = tmp_path_factory.mktemp("together")
    return folder, losses(run_under_torchrun(SCRIPT, "--steps", STEPS, "--checkpoint", folder))


@pytest.fixture(scope="module")
def stopped_half_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of two ranks that did half of the steps."""
    folder = tmp_path_factory.mktemp("stopped_half_way")
    run_under_torchrun(SCRIPT, "--steps", STEPS // 2, "--checkpoint", folder)
    return folder


def test_two_ranks_learn_what_one_rank_learns(alone: dict[int, float], together: tuple[Path, dict[int, float]]) -> None:
    assert together[1] == pytest.approx(alone, rel=1e-2)
    assert alone[STEPS - 1] < alone[0] - 0.5


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    together: tuple[Path, dict[int, float]], stopped_half_way: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(stopped_half_way, tmp_path / "resumed")
    printed = run_under_torchrun(SCRIPT, "--steps", STEPS, "--checkpoint", folder)
    assert f"resumed after {STEPS // 2} steps" in printed
    assert losses(printed)[STEPS - 1] == together[1][STEPS - 1]
    torch.testing.assert_close(checkpoint_in(folder)["model"], checkpoint_in(together[0])["model"], rtol=0, atol=0)


def test_one_rank_goes_on_where_two_stopped(alone: dict[int, float], stopped_half_way: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stopped_half_way, tmp_path / "resumed")
    resumed = losses(run_alone(SCRIPT, "--steps", STEPS, "--checkpoint", folder))
    assert resumed[STEPS - 1] == pytest.approx(alone[STEPS - 1], rel=1e-2)


def test_the_jobs_learning_rate_is_used(tmp_path: Path) -> None:
    given = {"TRADEWIND_HYPERPARAMETERS": '{"learning_rate": 0.0005, "global_batch": 4}'}
    run_alone(SCRIPT, "--steps", 1, "--checkpoint", tmp_path, env=given)
    assert checkpoint_in(tmp_path)["optimizer"]["param_groups"][0]["lr"] == 0.0005


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_the_ranks_of_any_world_compute_the_same_batch(script: dict[str, Any], world: int) -> None:
    text = torch.arange(1000)
    whole = script["windows"](text, 3, 17, 5, slice(None))
    parts = [script["windows"](text, 3, 17, 5, script["share_of"](rank, world, 5)) for rank in range(world)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_later_checkpoint_replaces_the_earlier_one_and_leaves_nothing_beside_it(
    script: dict[str, Any], tmp_path: Path
) -> None:
    for steps_done in (1, 2):
        script["save"]({"steps_done": steps_done, "model": {}, "optimizer": {}}, tmp_path)
    assert script["load"](tmp_path)["steps_done"] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
