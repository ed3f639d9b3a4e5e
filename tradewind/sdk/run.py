"""A training run that lives through changes of the world.

    run = tradewind.Run(model, optimizer, dataset, batch=48, steps=1000)
    for batch in run:
        loss = loss_fn(model(batch[0]), batch[1])
        run.backward(loss)

Between two turns of the loop the gradients of all ranks are summed, the optimizer steps, and, if the world has changed,
this trainer goes over to the new one. The loop sees nothing of it, but for one thing: after a loss, or with
`max_share`, it may be handed more samples of the same step.
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
    """Iterate over it once: it yields the samples of each step that this rank has to compute.

    model, optimizer   as for one process; parameters on one device. Ranks may start with different weights: those of
                       rank 0, or of the newest checkpoint, become everybody's.
    dataset            map-style: len() and [index].
    batch              samples of all ranks together in one step. Neither it nor the order depends on the world.
    steps              of the whole run.
    seed               of the order of samples, and of the random numbers inside the loop.
    scheduler          stepped after the optimizer, once for each step.
    clip_norm          of the summed gradient, before the optimizer.
    scaler             a torch.amp.GradScaler. run.backward scales the loss; the summed gradient is unscaled before it
                       is clipped. A step that overflows is skipped by all ranks alike.
    on_nonfinite       what all ranks do with a step in which a loss or gradient is NaN or infinite: "stop" ends the run
                       with an error that names rank and step, "skip" does not apply the step, "warn" applies it.
                       With a scaler, which skips such steps itself, it has no effect.
    max_share          at most so many samples are handed out at once: a larger share comes in several turns of the
                       loop, and their gradients are added up.
    update             in place of clipping, optimizer.step() and scheduler.step(): called once for each step with the
                       summed gradient in .grad. It must depend on that and on the state alone. With a scaler it calls
                       scaler.step(optimizer); unscaling, and scaler.update(), are done for it.
    state              whatever else must survive, by name: anything with state_dict() and load_state_dict().
    checkpoints        a folder; every `checkpoint_every` steps one rank writes there. Used when everything is lost.
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
            raise RuntimeError("a run is iterated over once; to train further, make another one with more steps")
        self._iterated = True
        self._parts.worlds.begin()
        return self._parts.training.run()

    def backward(self, loss: Tensor) -> None:
        """In place of loss.backward(): `loss` is the mean over the batch that was handed out last."""
        self._parts.batches.backward(loss)

    @contextlib.contextmanager
    def paused(self, reason: str) -> Iterator[None]:
        """Around what one rank does while the others wait: an evaluation, a download. `tradewind status` shows the
        reason, and the wait has no limit as long as this process runs. Alone and under torchrun it does nothing."""
        with self._parts.trainer.paused(str(reason) or "paused"):
            yield

    def stop(self) -> None:
        """Ends the run on all ranks after the step that is being computed. May be called on any rank, or on several.

        The step is completed and applied, a last checkpoint is written if checkpoints are on, and the loop ends as
        after the last step. Call run.backward(loss) for the batch at hand all the same, and do not break.
        """
        self._parts.ending.ask()

    @property
    def certificate(self) -> Certificate:
        """What the run can prove about its samples so far."""
        return self._parts.certificate

    @property
    def step(self) -> int:
        """The step that is being computed, from 0."""
        return self._parts.training.step

    @property
    def loss(self) -> float | None:
        """The mean over all samples of the last step that was done, on all ranks."""
        return self._parts.exchange.loss

    @property
    def rank(self) -> int:
        """In the present world; it may be another one in the next step."""
        world = self._world
        return world.rank if world is not None else 0

    @property
    def world_size(self) -> int:
        world = self._world
        return world.size if world is not None else 1

    @property
    def generation(self) -> int:
        """The number of the present world: it grows with each change; 0 before the first."""
        world = self._world
        return world.generation if world is not None else 0

    @property
    def _world(self) -> World | None:
        return self._parts.trainer.world
