"""A training run that continues when the world changes.

    run = tradewind.Run(model, optimizer, dataset, batch=48, steps=1000)
    for batch in run:
        loss = loss_fn(model(batch[0]), batch[1])
        run.backward(loss)

Between two iterations of the loop, the run all-reduces the gradients, steps the optimizer and, if the world changes,
switches to the new world. The loop notices only one thing: after a loss of a worker, or with `max_share`, it gets
several batches of the same step.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.utils.data import Dataset

from tradewind.sdk.assembly import Course, Data, Parts
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.learner import Script
from tradewind.sdk.nonfinite import OnNonfinite
from tradewind.sdk.trainer.state import World
from tradewind.sdk.training_state.training_state import Stateful


class Run:
    """The training loop: an iterable that yields the samples that this rank computes. Iterate over it once.

    model, optimizer   as for one process; parameters on one device. Ranks may start with different weights: all ranks
                       then take those of rank 0, or of the newest checkpoint.
    dataset            map-style: len() and [index].
    batch              number of samples of all ranks together in one step. Neither the batch nor the order of samples
                       depends on the world.
    steps              number of steps of the whole run.
    seed               seed of the order of samples, and of the random numbers inside the loop.
    scheduler          stepped after the optimizer, once for each step.
    clip_norm          maximum norm of the all-reduced gradient, clipped before the optimizer steps.
    scaler             a torch.amp.GradScaler. run.backward scales the loss; the all-reduced gradient is unscaled before
                       it is clipped. All ranks skip the same steps that overflow.
    on_nonfinite       what all ranks do with a step in which a loss or gradient is NaN or infinite: "stop" ends the run
                       with an error that names rank and step, "skip" does not apply the step, "warn" applies it.
                       With a scaler, which skips such steps itself, it has no effect.
    max_share          maximum number of samples in one batch: a larger share comes as several batches, and their
                       gradients are added up.
    update             replaces clipping, optimizer.step() and scheduler.step(): called once for each step with the
                       all-reduced gradient in .grad. It may depend on the gradient and the state only. With a scaler,
                       it calls scaler.step(optimizer); the run unscales and calls scaler.update().
    state              other state that must survive, by name: any object with state_dict() and load_state_dict().
    checkpoints        a folder; every `checkpoint_every` steps one rank writes there. The run resumes from there when
                       all workers are lost.
    collate            as for a DataLoader.
    prefetch           read the next share ahead, in a thread; not for datasets that belong to one thread or draw from
                       the global random generators.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        dataset: Dataset[Any],
        *,
        batch: int,
        steps: int,
        seed: int = 0,
        shuffle: bool = True,
        scheduler: Any = None,
        clip_norm: float | None = None,
        scaler: GradScaler | None = None,
        on_nonfinite: OnNonfinite = "stop",
        max_share: int | None = None,
        update: Callable[[], None] | None = None,
        state: Mapping[str, Stateful] | None = None,
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: bool = True,
    ) -> None:
        self._parts = Parts(
            Script(model, optimizer, scheduler, clip_norm, scaler, update, state),
            Data(dataset, batch, seed, shuffle, max_share, collate, prefetch),
            Course(steps, on_nonfinite, checkpoints, checkpoint_every),
        )
        self._iterated = False

    def __iter__(self) -> Iterator[Any]:
        if self._iterated:
            raise RuntimeError("a run can be iterated only once; to train further, make another run with more steps")
        self._iterated = True
        self._parts.worlds.begin()
        return self._parts.training.run()

    def backward(self, loss: Tensor) -> None:
        """Replaces loss.backward(). `loss` is the mean over the batch that the loop got last."""
        self._parts.batches.backward(loss)

    @contextlib.contextmanager
    def paused(self, reason: str) -> Iterator[None]:
        """A context for work of one rank while the others wait: an evaluation, a download.

        `tradewind status` shows the reason. The other ranks wait without limit while this process runs. Alone and
        under torchrun, it does nothing.
        """
        with self._parts.trainer.paused(str(reason) or "paused"):
            yield

    def stop(self) -> None:
        """Ends the run on all ranks after the current step. Any rank may call it, or several.

        The run completes and applies the step and writes a last checkpoint, if checkpoints are on. Then the loop ends
        as after the last step. Still call run.backward(loss) for the current batch, and do not break.
        """
        self._parts.ending.ask()

    @property
    def certificate(self) -> Certificate:
        """Proof of which samples the run has used so far."""
        return self._parts.certificate

    @property
    def step(self) -> int:
        """The current step, counted from 0."""
        return self._parts.training.step

    @property
    def loss(self) -> float | None:
        """The mean loss over the samples of all ranks in the last completed step."""
        return self._parts.exchange.loss

    @property
    def rank(self) -> int:
        """This rank in the current world; it may change with each step."""
        world = self._world
        return world.rank if world is not None else 0

    @property
    def world_size(self) -> int:
        world = self._world
        return world.size if world is not None else 1

    @property
    def generation(self) -> int:
        """The number of the current world: it increases with each change; 0 before the first world."""
        world = self._world
        return world.generation if world is not None else 0

    @property
    def _world(self) -> World | None:
        return self._parts.trainer.world
