"""Two trainings of the same model in the same processes, alternating: plain DDP, and a run of the SDK.

Each block is a number of steps of one of them. Rank 0 writes the durations of the steps of each block.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import tradewind

_INPUTS = 256
_ORDER = ("ddp", "sdk", "sdk", "ddp")


class Numbers(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, size: int = 4096) -> None:
        self._inputs = torch.randn(size, _INPUTS, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._inputs[index], self._inputs[index].flip(0)


def model_of(width: int) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(_INPUTS, width), nn.ReLU(), nn.Linear(width, _INPUTS))


def plain(options: argparse.Namespace) -> Callable[[], None]:
    """A function for one step of plain DDP."""
    model = DistributedDataParallel(model_of(options.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    sampler: DistributedSampler[Any] = DistributedSampler(Numbers(), seed=3)
    loader = DataLoader(Numbers(), batch_size=options.batch // dist.get_world_size(), sampler=sampler, drop_last=True)
    batches = _endless(loader, sampler)

    def step() -> None:
        inputs, targets = next(batches)
        time.sleep(options.sleep_ms / 1000)
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()

    return step


def _endless(loader: "DataLoader[Any]", sampler: "DistributedSampler[Any]") -> Iterator[Any]:
    for epoch in count():
        sampler.set_epoch(epoch)
        yield from loader


def ours(options: argparse.Namespace) -> Callable[[], None]:
    model = model_of(options.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    run = tradewind.Run(model, optimizer, Numbers(), batch=options.batch, steps=1_000_000, seed=3)
    batches = iter(run)

    def step() -> None:
        inputs, targets = next(batches)
        time.sleep(options.sleep_ms / 1000)
        run.backward(nn.functional.mse_loss(model(inputs), targets))

    return step


def block(step: Callable[[], None], steps: int) -> list[float]:
    """Durations in ms of the steps of a block. All ranks begin together."""
    dist.barrier()
    step()
    took_ms = []
    for _ in range(steps):
        began_s = time.perf_counter()
        step()
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return took_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="steps of a block")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--sleep-ms", type=float, default=5.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    sides = {"ddp": plain(options), "sdk": ours(options)}
    for side in sides.values():
        block(side, options.steps)
    for number in range(1, options.rounds + 1):
        took = [{"side": side, "steps_ms": block(sides[side], options.steps)} for side in _ORDER]
        if dist.get_rank() == 0:
            written = options.folder / f"round-{number}.new"
            written.write_text(json.dumps(took))
            written.rename(written.with_suffix(".json"))
    dist.barrier()
    time.sleep(3600)


if __name__ == "__main__":
    main()
