"""A small run on the SDK with checkpoints. It takes its time while the file HOLD is there."""

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import tradewind

BATCH = 8
EVERY = 5


class Waves(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.sin(torch.arange(8.0) * (index + 1))
        return inputs, inputs[:2]


torch.manual_seed(0)
model = nn.Linear(8, 2)
steps, folder, hold = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
run = tradewind.Run(
    model,
    torch.optim.Adam(model.parameters()),
    Waves(),
    batch=BATCH,
    steps=steps,
    checkpoints=folder,
    checkpoint_every=EVERY,
)
for inputs, targets in run:
    time.sleep(0.3 if hold.exists() else 0.005)
    run.backward(nn.functional.mse_loss(model(inputs), targets))
    if run.rank == 0:
        print(f"step {run.step} world {run.world_size}", flush=True)
print(run.certificate.message(), flush=True)
