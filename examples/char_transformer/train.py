"""A character-level transformer that learns the text in text.txt.

Runs alone (`python train.py`), under torchrun, or as a Tradewind job. The script is written as for one process: the run
divides the samples of each step, all-reduces the gradients, and continues when the world changes.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

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
        x = self.character(characters) + self.position(torch.arange(characters.shape[1], device=characters.device))
        out: Tensor = self.output(self.before_output(self.blocks(x)))
        return out


def _start_small(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Windows(Dataset[Tensor]):
    """All substrings of the text that are one character longer than the context."""

    def __init__(self, text: str) -> None:
        number_of = {character: number for number, character in enumerate(sorted(set(text)))}
        self.characters = len(number_of)
        self._text = torch.tensor([number_of[character] for character in text])

    def __len__(self) -> int:
        return len(self._text) - CONTEXT

    def __getitem__(self, start: int) -> Tensor:
        return self._text[start : start + CONTEXT + 1]


def loss_of(model: nn.Module, windows: Tensor) -> Tensor:
    predicted = model(windows[:, :-1])
    return functional.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())


def train(options: argparse.Namespace) -> None:
    given = tradewind.hyperparameters()
    batch = int(given.get("global_batch") or options.global_batch)
    learning_rate = float(given.get("learning_rate") or options.learning_rate)

    torch.manual_seed(options.seed)
    dataset = Windows(options.text.read_text(encoding="utf-8"))
    device = torch.device("cuda", local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    model = CharTransformer(dataset.characters).to(device)
    print(f"device: {name_of(device)}", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    run = tradewind.Run(
        model,
        optimizer,
        dataset,
        batch=batch,
        steps=options.steps,
        seed=options.seed,
        checkpoints=options.checkpoint,
        checkpoint_every=options.checkpoint_every,
    )
    for windows in run:
        began_s = time.monotonic()
        run.backward(loss_of(model, windows.to(device)))
        pace(began_s, options.step_ms / 1000, len(windows) * run.world_size / batch)
        if run.rank == 0 and run.step % LINE_EVERY_STEPS == 1:
            tell(run)
    if run.rank == 0:
        tell(run)
        print(f"certificate: {run.certificate.message()}", flush=True)


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def name_of(device: torch.device) -> str:
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"


def pace(began_s: float, step_s: float, share: float) -> None:
    """Sleeps so that a step takes as long as one of a big model. `share` is this batch's part of a rank's share."""
    time.sleep(max(0.0, began_s + step_s * min(1.0, share) - time.monotonic()))


def tell(run: tradewind.Run) -> None:
    """Prints the loss of the last completed step."""
    if run.loss is not None:
        print(f"step {run.step - 1} loss {run.loss:.4f} world {run.world_size}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--global-batch", type=int, default=48, help="samples in a step, over all ranks")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="save here, and resume from here")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=0, help="minimum time of a step, to simulate a big model")
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("text.txt"))
    return parser.parse_args()


if __name__ == "__main__":
    train(parse_options())
