"""A small run on the SDK in which one rank sleeps in its loop body: for a while (`evaluate`, `pause`) or for ever, once
(`hang`)."""

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import tradewind

BATCH = 24
SLEEPS_AT = 15
EVALUATION_S = 4.0


class Waves(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 500

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.sin(torch.arange(8.0) * (index + 1))
        return inputs, inputs[:2]


def never_comes_back() -> None:
    time.sleep(3600)


hold, what = Path(sys.argv[1]), sys.argv[2]
hung = hold.with_name("hung")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
run = tradewind.Run(model, torch.optim.Adam(model.parameters()), Waves(), batch=BATCH, steps=int(sys.argv[3]))
for inputs, targets in run:
    time.sleep((0.1 if hold.exists() and run.step > SLEEPS_AT else 0.02) * len(inputs) / BATCH)
    if what == "evaluate" and run.rank == 0 and run.step == SLEEPS_AT:
        time.sleep(EVALUATION_S)
    if what == "pause" and run.rank == 0 and run.step == SLEEPS_AT:
        with run.paused("evaluating"):
            time.sleep(EVALUATION_S)
    if what == "hang" and run.rank == 1 and run.step >= SLEEPS_AT and not hung.exists():
        hung.touch()
        never_comes_back()
    run.backward(nn.functional.mse_loss(model(inputs), targets))
    if run.rank == 0:
        print(f"step {run.step} loss {run.loss or 0:.4f} world {run.world_size}", flush=True)
print(f"generation {run.generation}: {run.certificate.message()}", flush=True)
