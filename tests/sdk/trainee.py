"""A small training script for tests of the SDK, as a function that a forked process runs."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tradewind


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
    """`drop:STEP` or `repeat:STEP`: what a broken reader would do on rank 1."""


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
    seen: list[tuple[int, int, int, int]] = []
    for inputs, targets in run:
        if recipe.compute_s:
            time.sleep(recipe.compute_s * len(inputs) / recipe.batch)
        run.backward(nn.functional.mse_loss(model(inputs), targets))
        seen.append((run.step, run.generation, run.rank, len(inputs)))
    _write(folder / f"result-{os.getpid()}", model, optimizer, run, seen)


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


def as_json(recipe: Recipe) -> str:
    return json.dumps(asdict(recipe))
