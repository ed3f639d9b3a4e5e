"""The script that trains while its world changes: an MLP with Adam, and a sleep that simulates a GPU's work.

In addition to the SDK's trace it traces orders, built groups and computed gradients. On demand every rank writes, at
the same step, a hash of all its state and its certificate.
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import tradewind
from tradewind.protocol.trainer import Assign, Halt, Order
from tradewind.sdk.diagnostics import TRACE, Trace
from tradewind.sdk.groups.group import Built

_INPUTS = 512


class Numbers(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Samples that depend on their index only."""

    def __init__(self, size: int = 8192) -> None:
        generator = torch.Generator().manual_seed(1)
        self._inputs = torch.randn(size, _INPUTS, generator=generator)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._inputs[index], self._inputs[index].flip(0)


def model_of(width: int) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, _INPUTS)
    )


def watch_orders(run: tradewind.Run, traced: Trace) -> None:
    """Traces orders and groups, which arrive in other threads than the training thread of the SDK's trace."""
    member = run._parts.trainer
    obey, built = member.obey, member.built

    def obeyed(order: Order) -> None:
        if isinstance(order, Halt | Assign):
            traced(type(order).__name__.lower(), run.rank, order.generation, run.step)
        obey(order)

    def traced_built(generation: int, group: Built | None) -> None:
        traced("built", run.rank, generation, run.step)
        built(generation, group)

    vars(member).update(obey=obeyed, built=traced_built)


class Audit:
    """Writes state digest and certificate of this rank before the step that FOLDER/audit contains."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reported = -1

    def __call__(self, run: tradewind.Run, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        asked = self._folder / "audit"
        if not asked.exists():
            return
        step = int(asked.read_text())
        if run.step != step or self._reported == step:
            return
        self._reported = step
        reported = {"rank": run.rank, "step": step, "digest": _digest(model, optimizer)}
        answer = self._folder / f"audit-{step}-{os.getpid()}.new"
        answer.write_text(json.dumps(reported | {"certificate": run.certificate.as_dict()}))
        answer.rename(answer.with_suffix(".json"))


def _digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    digest = hashlib.sha1()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
        for name, value in sorted(optimizer.state[parameter].items()):
            digest.update(name.encode() + torch.as_tensor(value).numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument(
        "--sleep-ms", type=float, default=200.0, help="sleep for the whole batch; a rank sleeps for its share"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = model_of(options.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    run = tradewind.Run(model, optimizer, Numbers(), batch=options.batch, steps=1_000_000, seed=3)
    traced = Trace(os.environ.get(TRACE))
    watch_orders(run, traced)
    audit = Audit(options.folder)
    traced("asked", 0, 0, 0)
    for inputs, targets in run:
        audit(run, model, optimizer)
        time.sleep(options.sleep_ms / 1000 * len(inputs) / options.batch)
        run.backward(nn.functional.mse_loss(model(inputs), targets))
        traced("computed", run.rank, run.generation, run.step, samples=len(inputs))


if __name__ == "__main__":
    main()
