"""A plain torchrun script: a small network learns a function with DDP, and resumes from its snapshot after a restart.

It does not use Tradewind. Start it with `torchrun --nproc-per-node=2 train.py`, or with `tradewind run`.
"""

import argparse
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

INPUTS = 32
HIDDEN = 256


def make_dataset(samples: int) -> TensorDataset:
    """Makes points and the values of a fixed random function at them: the same in every process."""
    generator = torch.Generator().manual_seed(7)
    points = torch.randn(samples, INPUTS, generator=generator)
    directions = torch.randn(INPUTS, 1, generator=generator) / INPUTS**0.5
    return TensorDataset(points, torch.sin(points @ directions))


def make_model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
    )


class Trainer:
    def __init__(self, options: argparse.Namespace, device: torch.device, write_trace: Callable[[int], None]) -> None:
        self.options = options
        self.device = device
        self.write_trace = write_trace
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        dataset = make_dataset(options.samples)
        self.sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(dataset, shuffle=True, seed=7)
        self.loader = DataLoader(dataset, batch_size=options.batch, sampler=self.sampler)
        model = make_model().to(device)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
        self.steps_done = 0
        if options.snapshot is not None and options.snapshot.exists():
            self.load_snapshot(model, options.snapshot)
        self.model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    def load_snapshot(self, model: nn.Module, path: Path) -> None:
        snapshot = torch.load(path, map_location=self.device, weights_only=True)
        model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.steps_done = snapshot["steps_done"]
        print(f"rank {self.rank} resumes from the snapshot at step {self.steps_done}", flush=True)

    def save_snapshot(self, path: Path) -> None:
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps_done": self.steps_done,
        }
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        torch.save(snapshot, unfinished)
        unfinished.replace(path)

    def train(self) -> None:
        while self.steps_done < self.options.steps:
            epoch, batches_seen = divmod(self.steps_done, len(self.loader))
            self.sampler.set_epoch(epoch)
            for points, targets in islice(self.loader, batches_seen, None):
                if self.steps_done == self.options.steps:
                    break
                self.train_step(points.to(self.device), targets.to(self.device))

    def train_step(self, points: Tensor, targets: Tensor) -> None:
        began = time.monotonic()
        loss = nn.functional.mse_loss(self.model(points), targets)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        time.sleep(max(0.0, self.options.step_ms / 1000 - (time.monotonic() - began)))
        step = self.steps_done
        self.steps_done += 1
        self.write_trace(step)
        if self.rank == 0:
            print(f"step {step} loss {loss.item():.4f} world {self.world}", flush=True)
            is_last = self.steps_done == self.options.steps
            if self.options.snapshot is not None and (self.steps_done % self.options.save_every == 0 or is_last):
                self.save_snapshot(self.options.snapshot)


def tracer(prefix: str | None) -> Callable[[int], None]:
    """Returns a function that writes `<unix time> <step> <world>` for each step to a file of this process."""
    if prefix is None:
        return lambda step: None
    world = dist.get_world_size()
    path = Path(f"{prefix}.{dist.get_rank()}.{os.getpid()}")

    def write(step: int) -> None:
        with path.open("a", encoding="ascii") as file:
            file.write(f"{time.time():.6f} {step} {world}\n")

    return write


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--snapshot", type=Path, metavar="FILE", help="save here, and resume from here")
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=32, help="samples of one rank in a step")
    parser.add_argument("--samples", type=int, default=4096, help="size of the data set")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--step-ms", type=float, default=0, help="minimum time of a step, to simulate a big model")
    parser.add_argument("--trace", metavar="FILE_PREFIX", help="append each completed step to FILE_PREFIX.<rank>.<pid>")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    Trainer(options, device, tracer(options.trace)).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
