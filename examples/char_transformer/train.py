"""A character-level transformer that learns the prose beside it.

Runs alone (`python train.py`), under torchrun, or as a Tradewind job. The batch of a step depends on the seed and
the step only, never on the number of ranks: each rank computes its share of it, and the gradient is the mean over
all samples of the batch. So a run whose world changes follows the loss curve of one whose world does not.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TypedDict

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import tradewind

CONTEXT = 64
WIDTH = 128
HEADS = 4
LAYERS = 2
LINE_EVERY_STEPS = 20


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.joined_heads = nn.Linear(WIDTH, WIDTH)
        self.before_feed_forward = nn.LayerNorm(WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        out: Tensor = x + self.feed_forward(self.before_feed_forward(x))
        return out

    def attention(self, x: Tensor) -> Tensor:
        samples, length, _ = x.shape
        by_head = self.queries_keys_values(x).view(samples, length, 3 * HEADS, WIDTH // HEADS).transpose(1, 2)
        queries, keys, values = by_head.split(HEADS, dim=1)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        out: Tensor = self.joined_heads(seen.transpose(1, 2).reshape(samples, length, WIDTH))
        return out


class CharTransformer(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.before_output = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, characters, bias=False)
        self.apply(_start_small)

    def forward(self, characters: Tensor) -> Tensor:
        x = self.character(characters) + self.position(torch.arange(characters.shape[1]))
        out: Tensor = self.output(self.before_output(self.blocks(x)))
        return out


def _start_small(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def encode(text: str) -> tuple[Tensor, int]:
    """The text as numbers, and how many different characters it has."""
    characters = sorted(set(text))
    number_of = {character: number for number, character in enumerate(characters)}
    return torch.tensor([number_of[character] for character in text]), len(characters)


def share_of(rank: int, world: int, global_batch: int) -> slice:
    """The samples of the batch that a rank computes: as even as can be, each sample exactly once."""
    return slice(rank * global_batch // world, (rank + 1) * global_batch // world)


def windows(text: Tensor, seed: int, step: int, global_batch: int, share: slice) -> Tensor:
    """This rank's part of the step's batch: stretches of text, one character longer than the context."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(text) - CONTEXT, (global_batch,), generator=generator)[share]
    return text[starts.unsqueeze(1) + torch.arange(CONTEXT + 1)]


def summed_loss(model: nn.Module, samples: Tensor) -> Tensor:
    """The sum, over samples, of each sample's mean loss."""
    predicted = model(samples[:, :-1])
    return functional.cross_entropy(predicted.flatten(0, 1), samples[:, 1:].flatten(), reduction="sum") / CONTEXT


class Checkpoint(TypedDict):
    steps_done: int
    model: dict[str, Tensor]
    optimizer: dict[str, object]


def save(checkpoint: Checkpoint, folder: Path) -> None:
    """Whoever reads the checkpoint, whenever this process dies, finds the last complete one."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(folder / "checkpoint.pt")
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def load(folder: Path | None) -> Checkpoint | None:
    if folder is None or not (folder / "checkpoint.pt").exists():
        return None
    checkpoint: Checkpoint = torch.load(folder / "checkpoint.pt", weights_only=True)
    return checkpoint


def load_the_same_everywhere(folder: Path | None, rank: int) -> Checkpoint | None:
    """What rank 0 reads, for all: ranks that read for themselves could find different steps."""
    found = [load(folder) if rank == 0 else None]
    if dist.is_initialized():
        dist.broadcast_object_list(found)
    return found[0]


def mean_over_batch(summed: Tensor, global_batch: int) -> float:
    total = summed.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.item() / global_batch


def train(options: argparse.Namespace, rank: int, world: int) -> None:
    given = tradewind.hyperparameters()
    global_batch = int(given.get("global_batch") or options.global_batch)
    learning_rate = float(given.get("learning_rate") or options.learning_rate)

    text, characters = encode(options.text.read_text(encoding="utf-8"))
    torch.manual_seed(options.seed)
    bare_model = CharTransformer(characters)
    optimizer = torch.optim.AdamW(bare_model.parameters(), lr=learning_rate)
    checkpoint = load_the_same_everywhere(options.checkpoint, rank)
    first_step = 0
    if checkpoint is not None:
        bare_model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first_step = checkpoint["steps_done"]
        if rank == 0:
            print(f"resumed after {first_step} steps", flush=True)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    model = DistributedDataParallel(bare_model) if dist.is_initialized() else bare_model

    share = share_of(rank, world, global_batch)
    for step in range(first_step, options.steps):
        began = time.monotonic()
        samples = windows(text, options.seed, step, global_batch, share)
        summed = summed_loss(model, samples)
        optimizer.zero_grad()
        # DDP takes the mean over ranks: times the world, that is the sum over all samples of the batch.
        torch.autograd.backward(summed * world / global_batch)
        optimizer.step()
        loss = mean_over_batch(summed, global_batch)
        time.sleep(max(0.0, options.step_ms / 1000 - (time.monotonic() - began)))
        tradewind.report(step=step, loss=loss, samples=len(samples))

        steps_done = step + 1
        is_last = steps_done == options.steps
        if rank == 0 and (step % LINE_EVERY_STEPS == 0 or is_last):
            print(f"step {step} loss {loss:.4f} world {world}", flush=True)
        if rank == 0 and options.checkpoint and (steps_done % options.checkpoint_every == 0 or is_last):
            state = Checkpoint(steps_done=steps_done, model=bare_model.state_dict(), optimizer=optimizer.state_dict())
            save(state, options.checkpoint)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--global-batch", type=int, default=48, help="samples in a step, over all ranks")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="save here, and resume from here")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=0, help="let a step take at least so long, as a big model's")
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("text.txt"))
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    if "RANK" not in os.environ:
        train(options, rank=0, world=1)
        return
    dist.init_process_group("gloo")
    train(options, rank=dist.get_rank(), world=dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
