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
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from tradewind.sdk import control_words
from tradewind.sdk.agent.connection import open_control
from tradewind.sdk.assembly import Given, assemble, given_world
from tradewind.sdk.buckets import Gradients, parameters_of
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.checks import about_batch_norm, quiet, require_same_terms, require_usable, terms_of
from tradewind.sdk.loader import Loader
from tradewind.sdk.nonfinite import Nonfinite, OnNonfinite
from tradewind.sdk.samples import Order
from tradewind.sdk.stopping import Ending
from tradewind.sdk.training_state.training_state import Stateful, TrainingState
from tradewind.sdk.update import Applying, Scaled, Update


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
        if steps < 1:
            raise ValueError(f"steps is {steps}, but a run has at least one")
        if max_share is not None and max_share < 1:
            raise ValueError(f"max_share is {max_share}, but at least one sample has to be handed out at once")
        require_usable(optimizer, scheduler, has_update=update is not None)
        quiet(model)
        self.certificate = Certificate()
        self._ending = Ending(steps)
        writes = update is not None or clip_norm is not None or scaler is not None
        gradients = Gradients(parameters_of(model, optimizer), control_words.MOST, copies=writes)
        nonfinite = Nonfinite(on_nonfinite, self.certificate, scaled=scaler is not None and scaler.is_enabled())
        change = update or Update(gradients, optimizer, scheduler, clip_norm, scaler)
        scaled = Scaled(change, scaler, optimizer, gradients) if scaler is not None else None
        own = {"tradewind": _Kept(self.certificate), "scheduler": scheduler, "scaler": scaled}
        others = _together({name: one for name, one in own.items() if one is not None}, state or {})
        order = Order(_length(dataset), batch, seed, shuffle)
        kept = TrainingState(model, optimizer, others)
        terms = terms_of(
            kept,
            order,
            steps,
            trained=gradients.trained,
            device=gradients.device.type,
            clip_norm=clip_norm,
            scaler=type(scaler).__name__,
            scheduler=type(scheduler).__name__,
            update=update is not None,
            on_nonfinite=on_nonfinite,
        )
        require_same_terms(terms, os.environ)
        given = Given(
            gradients=gradients,
            order=order,
            loader=Loader(dataset, order, collate, prefetch=prefetch),
            state=kept,
            applying=Applying(gradients, optimizer, scaled or change, nonfinite, seed, is_own=update is not None),
            scaler=scaler,
            certificate=self.certificate,
            saving=Saving(checkpoints, checkpoint_every) if checkpoints is not None else None,
            ending=self._ending,
            nonfinite=nonfinite,
            seed=seed,
            most_samples=max_share or batch,
            terms=terms,
            warning=about_batch_norm(model),
        )
        self._iterated = False
        self._control = open_control()
        self._member, self._training = assemble(given, self._control)

    def __iter__(self) -> Iterator[Any]:
        if self._iterated:
            raise RuntimeError("a run is iterated over once; to train further, make another one with more steps")
        self._iterated = True
        if self._control is not None:
            self._member.tell()
            self._control.listen(self._member.obey)
        else:
            self._member.obey(given_world())
        return self._training.run()

    def backward(self, loss: Tensor) -> None:
        """In place of loss.backward(): `loss` is the mean over the batch that was handed out last."""
        self._training.backward(loss)

    @contextlib.contextmanager
    def paused(self, reason: str) -> Iterator[None]:
        """Around what one rank does while the others wait: an evaluation, a download. `tradewind status` shows the
        reason, and the wait has no limit as long as this process runs. Alone and under torchrun it does nothing."""
        with self._member.paused(str(reason) or "paused"):
            yield

    def stop(self) -> None:
        """Ends the run on all ranks after the step that is being computed. May be called on any rank, or on several.

        The step is completed and applied, a last checkpoint is written if checkpoints are on, and the loop ends as
        after the last step. Call run.backward(loss) for the batch at hand all the same, and do not break.
        """
        self._ending.ask()

    @property
    def step(self) -> int:
        """The step that is being computed, from 0."""
        return self._training.step

    @property
    def loss(self) -> float | None:
        """The mean over all samples of the last step that was done, on all ranks."""
        return self._training.loss

    @property
    def rank(self) -> int:
        """In the present world; it may be another one in the next step."""
        world = self._training.world
        return world.rank if world is not None else 0

    @property
    def world_size(self) -> int:
        world = self._training.world
        return world.size if world is not None else 1

    @property
    def generation(self) -> int:
        world = self._training.world
        return world.generation if world is not None else 0


class _Kept:
    """The certificate goes where the state goes."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    def state_dict(self) -> dict[str, Any]:
        return self._certificate.as_dict()

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        self._certificate.take_over(Certificate.from_dict(state_dict))


def _together(own: Mapping[str, Stateful], given: Mapping[str, Stateful]) -> dict[str, Stateful]:
    for name in own.keys() & given.keys():
        raise ValueError(f"state has {name!r}, which is the run's own name for a part of its state: call it another")
    return {**own, **given}


def _length(dataset: Any) -> int:
    if isinstance(dataset, DataLoader):
        raise TypeError(
            "a run reads samples by itself: give it the dataset of the DataLoader (and collate= if need be)"
        )
    try:
        return len(dataset)
    except TypeError:
        raise TypeError(
            f"{type(dataset).__name__} has no len(): a run needs a map-style dataset, whose samples are read by index"
        ) from None
