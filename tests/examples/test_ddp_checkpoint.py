"""The plain DDP script: what it prints, traces and saves is what tests and benchmarks rely on."""

from pathlib import Path

import torch

from benchmarks import trace
from tests.examples.running import EXAMPLES, losses, run_under_torchrun, run_warm

SCRIPT = EXAMPLES / "ddp_checkpoint" / "train.py"


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, halves, steps = tmp_path / "whole.pt", tmp_path / "halves.pt", tmp_path / "steps"
    # 60 samples in batches of 5 for each of two ranks: an epoch ends after step 5.
    options = ("--samples", 60, "--batch", 5, "--learning-rate", 0.003)

    printed = losses(run_under_torchrun(SCRIPT, *options, "--steps", 20, "--snapshot", whole, "--trace", steps))
    assert list(printed) == list(range(20))
    assert printed[19] < printed[0] / 2
    assert [traced.step for traced in trace.read(steps) if traced.world == 2] == sorted([*range(20), *range(20)])

    run_warm(SCRIPT, *options, "--steps", 10, "--snapshot", halves, ranks=2)
    resumed = losses(run_warm(SCRIPT, *options, "--steps", 20, "--snapshot", halves, ranks=2))
    assert list(resumed) == list(range(10, 20))
    torch.testing.assert_close(
        torch.load(halves, weights_only=True)["model"], torch.load(whole, weights_only=True)["model"], rtol=0, atol=0
    )
