"""A small training script for tests of the SDK, as a function that a forked process runs."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tradewind
from tradewind.sdk.samples import Order, Ranges
from tradewind.sdk.stream import Streamer, StreamJob

CRAWL_S = 0.2


@dataclass(frozen=True)
class Recipe:
    folder: str
    steps: int = 30
    batch: int = 48
    width: int = 64
    compute_s: float = 0.0
    """Of the whole batch: stands in for real work, split among ranks by their samples."""
    checkpoints: bool = False
    checkpoint_every: int = 5
    mischief: str = ""
    """`drop`, `repeat` or `swap`: what a broken reader does with the first sample of rank 1 in step 3."""
    loses_a_shard: bool = False
    """The one born second never sends the first shard of the state that it should."""


class Numbers(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Samples that depend on their index only."""

    def __init__(self, size: int = 1000) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.sin(torch.arange(16, dtype=torch.float32) * (index + 1))
        return inputs, inputs.flip(0)[:4] * 0.5


def model_of(width: int) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))


def train(recipe: Recipe, env: dict[str, str]) -> None:
    os.environ.update(env)
    torch.set_num_threads(1)
    model = model_of(recipe.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    folder = Path(recipe.folder)
    run = tradewind.Run(
        model,
        optimizer,
        Numbers(),
        batch=recipe.batch,
        steps=recipe.steps,
        seed=3,
        checkpoints=folder / "checkpoints" if recipe.checkpoints else None,
        checkpoint_every=recipe.checkpoint_every,
    )
    if recipe.mischief and env["RANK"] == "1":
        _break_reader(run, recipe.mischief)
    if recipe.loses_a_shard:
        run._training._parts.joining._receiver._silence_s = 0.5
        if env["RANK"] == "1":
            _lose_first_shard(run._training._parts.serving._streamer)
    seen: list[tuple[int, int, int, int]] = []
    for inputs, targets in run:
        _wait_for_leave(folder, run.step)
        if recipe.compute_s:
            time.sleep(recipe.compute_s * len(inputs) / recipe.batch)
        run.backward(nn.functional.mse_loss(model(inputs), targets))
        seen.append((run.step, run.generation, run.rank, len(inputs)))
    _write(folder / f"result-{os.getpid()}", model, optimizer, run, seen)


def _wait_for_leave(folder: Path, step: int) -> None:
    """A test that wants something to happen before a step says so: FOLDER/limit holds the first that has to wait.

    Who joins needs steps to go on, so a test may also have them go on slowly: FOLDER/crawl."""
    while _reaches(folder / "limit", step):
        waiting = folder / f"waiting-{os.getpid()}.new"
        waiting.write_text(str(step))
        waiting.rename(waiting.with_suffix(""))
        time.sleep(0.01)
    if _reaches(folder / "crawl", step):
        time.sleep(CRAWL_S)


def _reaches(file: Path, step: int) -> bool:
    """Read without a look at whether it is there: the test may take it away between the two."""
    try:
        return step >= int(file.read_text())
    except FileNotFoundError:
        return False


class LyingOrder(Order):
    def __init__(self, honest: Order, mischief: str) -> None:
        super().__init__(honest.size, honest.batch, seed=0)
        self._honest = honest
        self._mischief = mischief

    def indices(self, step: int, ranges: Ranges | None = None) -> list[int]:
        right = self._honest.indices(step, ranges)
        if step != 3:
            return right
        return {"drop": right[1:], "repeat": [right[0], *right], "swap": [right[0] ^ 1, *right[1:]]}[self._mischief]


def _break_reader(run: tradewind.Run, mischief: str) -> None:
    """Has the order of samples lie to this rank's reader, as a defect in it would."""
    loader = run._training._parts.loader
    loader._order = LyingOrder(loader._order, mischief)


def _lose_first_shard(streamer: Streamer) -> None:
    offer = streamer.offer

    def lose(job: StreamJob) -> None:
        job.failed("lost")
        vars(streamer).update(offer=offer)

    vars(streamer).update(offer=lose)


def _write(path: Path, model: nn.Module, optimizer: Any, run: tradewind.Run, seen: list[Any]) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path.with_suffix(".pt"))
    told = {
        "rank": run.rank,
        "loss": run.loss,
        "certificate": run.certificate.as_dict(),
        "seen": seen,
        "sentence": run.certificate.sentence(),
    }
    path.with_suffix(".tmp").write_text(json.dumps(told))
    path.with_suffix(".tmp").rename(path.with_suffix(".json"))
