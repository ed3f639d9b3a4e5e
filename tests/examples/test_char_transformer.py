"""The transformer learns, alone or with several ranks, and resumes from its checkpoint without any difference."""

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.running import EXAMPLES, losses, run_under_torchrun, run_warm
from tests.sdk.texts import numbers

SCRIPT = EXAMPLES / "char_transformer" / "train.py"
STEPS = 6
BATCH = 48


@pytest.fixture(scope="module")
def alone() -> str:
    """What an uninterrupted run of one rank printed."""
    return run_warm(SCRIPT, "--steps", STEPS)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The checkpoints of an uninterrupted run of two ranks, and what it printed."""
    folder = tmp_path_factory.mktemp("together")
    return folder, run_under_torchrun(SCRIPT, "--steps", STEPS, "--checkpoint", folder)


@pytest.fixture(scope="module")
def stopped_half_way(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of two ranks that did half of the steps."""
    folder = tmp_path_factory.mktemp("stopped_half_way")
    run_warm(SCRIPT, "--steps", STEPS // 2, "--checkpoint", folder, ranks=2)
    return folder


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    newest = max(folder.glob("step-*.pt"))
    weights: dict[str, torch.Tensor] = torch.load(newest, weights_only=True)["model"]
    return weights


def certificate(printed: str) -> str:
    (line,) = [line for line in printed.splitlines() if line.startswith("certificate: ")]
    return line.removeprefix("certificate: ")


def test_two_ranks_learn_what_one_rank_learns(alone: str, together: tuple[Path, str]) -> None:
    by_one, by_two = losses(alone), losses(together[1])
    assert list(by_one) == list(by_two) == [0, STEPS - 1]
    assert by_two == pytest.approx(by_one, abs=2e-4)
    assert by_one[STEPS - 1] < by_one[0] - 0.5


def test_every_sample_is_accounted_for(alone: str, together: tuple[Path, str]) -> None:
    assert numbers(certificate(alone)) == [STEPS, STEPS * BATCH, 0, 0]
    assert certificate(together[1]) == certificate(alone)


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(
    together: tuple[Path, str], stopped_half_way: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(stopped_half_way, tmp_path / "resumed")
    printed = run_warm(SCRIPT, "--steps", STEPS, "--checkpoint", folder, ranks=2)
    assert losses(printed)[STEPS - 1] == losses(together[1])[STEPS - 1]
    assert numbers(certificate(printed)) == [STEPS, STEPS * BATCH, 0, 0, STEPS // 2]
    torch.testing.assert_close(weights_in(folder), weights_in(together[0]), rtol=0, atol=0)


def test_one_rank_continues_where_two_stopped(alone: str, stopped_half_way: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(stopped_half_way, tmp_path / "resumed")
    resumed = losses(run_warm(SCRIPT, "--steps", STEPS, "--checkpoint", folder))
    assert resumed[STEPS - 1] == pytest.approx(losses(alone)[STEPS - 1], abs=2e-4)


def test_what_the_job_gives_is_used(alone: str) -> None:
    given = {"TRADEWIND_HYPERPARAMETERS": '{"learning_rate": 1e-9, "global_batch": 4}'}
    printed = run_warm(SCRIPT, "--steps", 3, env=given)
    assert numbers(certificate(printed)) == [3, 12, 0, 0]
    assert losses(printed)[2] == pytest.approx(losses(alone)[0], abs=0.3)


def test_the_dataset_has_every_window_of_the_text() -> None:
    script: dict[str, Any] = runpy.run_path(str(SCRIPT))
    context = script["CONTEXT"]
    text = "".join(chr(ord("a") + position % 7) for position in range(context + 3))
    windows = script["Windows"](text)
    assert (len(windows), windows.characters) == (3, 7)
    for start in range(3):
        assert windows[start].tolist() == [position % 7 for position in range(start, start + context + 1)]
