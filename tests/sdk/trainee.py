"""A small training script for tests of the SDK, as a function that a forked process runs."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import tradewind
from tradewind.protocol import trainer as protocol
from tradewind.protocol.trainer import Ranges
from tradewind.sdk import buckets
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.data.order import Order
from tradewind.sdk.errors import NonfiniteStep
from tradewind.sdk.exchange import Recorded
from tradewind.sdk.groups.group import Built, Group
from tradewind.sdk.nonfinite import OnNonfinite
from tradewind.sdk.transfer.sender import Streamer, StreamJob

CRAWL_S = 0.2
OVERFLOWS_AT = 7
DRIFTS = "TRAINEE_DRIFTS"
"""Environment variable of a trainer whose script changes the state in another way than the others."""


@dataclass(frozen=True)
class Recipe:
    folder: str
    steps: int = 30
    batch: int = 48
    width: int = 64
    compute_s: float = 0.0
    """Seconds of simulated work for a whole batch. Each rank sleeps for the part of its samples."""
    checkpoints: bool = False
    checkpoint_every: int = 5
    mischief: str = ""
    """Fault of the reader of rank 1 with its first sample in step 3: `drop`, `repeat` or `swap`; empty: none."""
    loses_a_shard: bool = False
    """Rank 1 of the first world never sends the first shard of the state that it should send."""
    misses_all_reduce_of: int | None = None
    """Step whose all-reduce fails on rank 1 of the first world, after all others have the result."""
    scaled: bool = False
    """Train with a gradient scaler, clipping, an update that draws random numbers, and an overflow in step 7."""
    max_share: int | None = None
    on_nonfinite: OnNonfinite = "stop"
    nan_in: tuple[int, ...] = ()
    """Steps in which the loss of rank 0 is NaN."""
    stops_in: int | None = None
    """The step in which the trainer that started as rank 1 stops the run."""
    bucket_bytes: int | None = None
    """Bytes of each bucket of gradients; None: the default of a run."""


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
    if recipe.bucket_bytes is not None:
        buckets.BUCKET_BYTES = recipe.bucket_bytes
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
        max_share=recipe.max_share,
        on_nonfinite=recipe.on_nonfinite,
        **(_scaled(model, optimizer) if recipe.scaled else {}),
    )
    _tell_when_prepared(run, folder)
    if recipe.misses_all_reduce_of is not None:
        (_miss_all_reduce if env["RANK"] == "1" else _tell_of_all_reduce)(run, folder, recipe.misses_all_reduce_of)
    if recipe.mischief and env["RANK"] == "1":
        _break_reader(run, recipe.mischief)
    if recipe.loses_a_shard:
        run._parts.worlds.receiver._silence_s = 0.5
        if env["RANK"] == "1":
            _lose_first_shard(run._parts.worlds.serving._streamer)
    if DRIFTS in env:
        _drift(run, model)
    seen: list[tuple[int, int, int, int]] = []
    try:
        _loop(recipe, env, run, model, seen)
    except NonfiniteStep as error:
        (folder / f"error-{os.getpid()}").write_text(str(error))
        raise
    _write(folder / f"result-{os.getpid()}", model, optimizer, run, seen)


def _loop(
    recipe: Recipe, env: dict[str, str], run: tradewind.Run, model: nn.Module, seen: list[tuple[int, int, int, int]]
) -> None:
    for inputs, targets in run:
        _wait_for_leave(Path(recipe.folder), run.step)
        if recipe.compute_s:
            time.sleep(recipe.compute_s * len(inputs) / recipe.batch)
        if run.step == recipe.stops_in and env["RANK"] == "1":
            run.stop()
        overflows = recipe.scaled and run.step == OVERFLOWS_AT
        run.backward(
            nn.functional.mse_loss(model(inputs), targets)
            * (float("inf") if overflows else 1.0)
            * (float("nan") if run.rank == 0 and run.step in recipe.nan_in else 1.0)
        )
        seen.append((run.step, run.generation, run.rank, len(inputs)))


def _scaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10)

    def update() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.add_(torch.randn_like(parameter.grad), alpha=1e-6)
        scaler.step(optimizer)

    return {"scaler": scaler, "update": update}


def _tell_when_prepared(run: tradewind.Run, folder: Path) -> None:
    """Writes FOLDER/prepared-PID-GENERATION when the build of the world ended, or the trainer knows that it leaves."""
    member = run._parts.trainer
    obey, built = member.obey, member.built

    def obeyed(order: protocol.Order) -> None:
        obey(order)
        if isinstance(order, protocol.Assign) and order.leaves:
            (folder / f"prepared-{os.getpid()}-{order.generation}").touch()

    def stood(generation: int, group: Built | None) -> None:
        built(generation, group)
        (folder / f"prepared-{os.getpid()}-{generation}").touch()

    vars(member).update(obey=obeyed, built=stood)


def _wait_for_leave(folder: Path, step: int) -> None:
    """Waits before the step in FOLDER/limit, which the test writes and removes.

    Steps from the one in FOLDER/crawl on are only slow, because a joining rank needs steps of the others.
    """
    while _reaches(folder / "limit", step):
        waiting = folder / f"waiting-{os.getpid()}.new"
        waiting.write_text(str(step))
        waiting.rename(waiting.with_suffix(""))
        time.sleep(0.01)
    if _reaches(folder / "crawl", step):
        time.sleep(CRAWL_S)


def _reaches(file: Path, step: int) -> bool:
    """True if the file exists and has this step or an earlier one."""
    try:
        return step >= int(file.read_text())
    except FileNotFoundError:
        return False


class LyingOrder(Order):
    def __init__(self, honest: Order, mischief: str) -> None:
        super().__init__(honest.size, honest.batch, seed=0)
        self._honest = honest
        self._mischief = mischief

    def indices(self, step: int, ranges: Ranges | None = None) -> list[int]:
        right = self._honest.indices(step, ranges)
        if step != 3:
            return right
        return {"drop": right[1:], "repeat": [right[0], *right], "swap": [right[0] ^ 1, *right[1:]]}[self._mischief]


def _break_reader(run: tradewind.Run, mischief: str) -> None:
    """Gives this rank's reader a wrong order of samples, as a defect in the order would."""
    loader = run._parts.loader
    loader._order = LyingOrder(loader._order, mischief)


class Deaf:
    """A group that does not see its operation complete. It fails only after the others have the result."""

    def __init__(self, group: Group, others_have_it: Callable[[], bool]) -> None:
        self._group = group
        self._others_have_it = others_have_it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def finish(self, *arguments: Any) -> bool:
        self._group.finish(*arguments)
        for _ in range(2000):
            if self._others_have_it():
                break
            time.sleep(0.005)
        return False


def _tell_of_all_reduce(run: tradewind.Run, folder: Path, step: int) -> None:
    member = run._parts.trainer
    step_reduced = member.step_reduced

    def tell(agreed: Agreed | None, *, counts: bool) -> bool:
        if agreed is not None and run.step == step:
            (folder / f"reduced-{os.getpid()}").touch()
        return step_reduced(agreed, counts=counts)

    vars(member).update(step_reduced=tell)


def _miss_all_reduce(run: tradewind.Run, folder: Path, step: int) -> None:
    member = run._parts.trainer
    start_collective = member.start_collective

    def start() -> Built | None:
        built = start_collective()
        if built is None or run.step != step:
            return built
        vars(member).update(start_collective=start_collective)
        others = built.group.size - 1
        return Built(Deaf(built.group, lambda: len(list(folder.glob("reduced-*"))) == others), built.joining_ranks)

    vars(member).update(start_collective=start)


def _drift(run: tradewind.Run, model: nn.Module) -> None:
    exchange = run._parts.exchange
    replay = exchange.replay

    def drift(recorded: Recorded) -> None:
        replay(recorded)
        with torch.no_grad():
            next(model.parameters()).add_(1e-3)

    vars(exchange).update(replay=drift)


def _lose_first_shard(streamer: Streamer) -> None:
    offer = streamer.offer

    def lose(job: StreamJob) -> None:
        job.failed("lost")
        vars(streamer).update(offer=offer)

    vars(streamer).update(offer=lose)


def _write(path: Path, model: nn.Module, optimizer: Any, run: tradewind.Run, seen: list[Any]) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path.with_suffix(".pt"))
    reported = {
        "rank": run.rank,
        "loss": run.loss,
        "certificate": run.certificate.as_dict(),
        "seen": seen,
        "message": run.certificate.message(),
    }
    path.with_suffix(".tmp").write_text(json.dumps(reported))
    path.with_suffix(".tmp").rename(path.with_suffix(".json"))
