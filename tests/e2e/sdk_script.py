"""A small run on the SDK, whose lines tell what it went through. It takes its time while the file HOLD is there."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import tradewind

BATCH = 24
SLOW_FROM = 30


class Waves(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 500

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.sin(torch.arange(8.0) * (index + 1))
        return inputs, inputs[:2]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
hold, steps = Path(sys.argv[1]), int(sys.argv[2])
run = tradewind.Run(
    model,
    torch.optim.Adam(model.parameters()),
    Waves(),
    batch=BATCH,
    steps=steps,
    checkpoints=hold.with_name("checkpoints"),
    checkpoint_every=10,
)
for inputs, targets in run:
    step_s = 0.2 if run.step >= SLOW_FROM and hold.exists() else 0.02
    time.sleep(step_s * run.world_size * len(inputs) / BATCH)
    run.backward(nn.functional.mse_loss(model(inputs), targets))
    if run.rank == 0:
        print(f"step {run.step} loss {run.loss or 0:.4f} world {run.world_size} pid {os.getpid()}", flush=True)
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
print(f"{run.certificate.message()}; weights {weights.double().sum():.9f}", flush=True)
