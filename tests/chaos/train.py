"""The training script of all four jobs: a tiny model on the SDK that obeys orders from a folder.

`train.py FOLDER STEPS BATCH STEP_S [escape]`. Steps last STEP_S while FOLDER/hold exists. An order is a file; the rank
that it names renames it, so each is carried out once. At the end each rank writes its result. With `escape` it starts a
child without an environment in its own session.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import tradewind

FAST_STEP_S = 0.003


class Waves(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 500

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.sin(torch.arange(8.0) * (index + 1))
        return inputs, inputs[:2]


def take_order(folder: Path, rank: int, world_size: int) -> tuple[str, dict[str, float]] | None:
    """Takes an order for this rank, if it has a peer: otherwise no rank waits for it."""
    for file in sorted(folder.glob("order-*.json")) if world_size > 1 else ():
        with contextlib.suppress(OSError):
            order = json.loads(file.read_text())
            if int(order["draw"]) % world_size == rank:
                file.rename(file.with_name(f"{file.stem}.taken"))
                return file.stem, order
    return None


def note(folder: Path, name: str, **fields: object) -> None:
    fresh = folder / f"{name}.new"
    fresh.write_text(json.dumps(fields))
    fresh.replace(folder / f"{name}.json")


def sleep_for_ever() -> None:
    while True:
        time.sleep(3600)


def obey(folder: Path, name: str, order: dict[str, float], run: tradewind.Run) -> None:
    done = {"rank": run.rank, "step": run.step, "generation": run.generation, "begin_s": time.monotonic()}
    note(folder, f"begun-{name}", **done)
    if order["seconds"] <= 0:
        sleep_for_ever()
    time.sleep(order["seconds"])
    note(folder, f"done-{name}", **done, end_s=time.monotonic())


def main() -> None:
    folder, steps, batch, held_s = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    if "escape" in sys.argv[5:]:
        subprocess.Popen(("sleep", "86400"), env={}, start_new_session=True, stdout=subprocess.DEVNULL)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    run = tradewind.Run(
        model,
        torch.optim.Adam(model.parameters()),
        Waves(),
        batch=batch,
        steps=steps,
        checkpoints=folder / "checkpoints",
        checkpoint_every=20,
    )
    for inputs, targets in run:
        order = take_order(folder, run.rank, run.world_size)
        if order is not None:
            obey(folder, *order, run)
        step_s = held_s if (folder / "hold").exists() else FAST_STEP_S
        time.sleep(step_s * run.world_size * len(inputs) / batch)
        run.backward(nn.functional.mse_loss(model(inputs), targets))
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    note(
        folder, f"final-{os.getpid()}", rank=run.rank, weights=digest.hexdigest(), certificate=run.certificate.as_dict()
    )


if __name__ == "__main__":
    main()
