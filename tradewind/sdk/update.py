"""Applies the all-reduced gradients of a step to the state: clip, step the optimizer, step the scheduler.

The result depends only on the gradients, the state and the step. So ranks that apply the same steps have the same state
to the last bit, and a joining rank gets the same state by applying the recorded steps.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from tradewind.sdk.buckets import Buckets
from tradewind.sdk.control_words import Agreed
from tradewind.sdk.nonfinite import Nonfinite
from tradewind.sdk.seeds import seed_all, seed_torch
from tradewind.sdk.training_state import optimizer_state


class Applier:
    def __init__(
        self,
        buckets: Buckets,
        optimizer: Optimizer,
        update: "Callable[[], None] | Scaled",
        nonfinite: Nonfinite,
        seed: int,
        *,
        is_own: bool,
    ) -> None:
        """`is_own` is True for the script's own update, which may use any random generator; optimizers use torch's."""
        self._buckets = buckets
        self._optimizer = optimizer
        self._update = update
        self._nonfinite = nonfinite
        self._applies = False
        self.loss: float | None = None
        """The loss of the step that was applied last, or is being applied: the script's own update may read it."""
        self._seed = seed
        self._reseed = seed_all if is_own else seed_torch

    @property
    def checks_gradients(self) -> bool:
        """True if each rank checks that its own gradient is finite; a gradient scaler checks this itself."""
        return not self._nonfinite.scaled

    def __call__(self, step: int, agreed: Agreed) -> None:
        """Applies the step, or skips it if on_nonfinite requires that."""
        self.loss = agreed.loss
        if self._nonfinite.admits(step, agreed):
            self._apply(step)
        self._buckets.drop()

    def _apply(self, step: int) -> None:
        self._buckets.use(step)
        self._reseed(self._buckets.device, self._seed, step)
        self._applies = True
        try:
            self._update()
        finally:
            self._applies = False
        if isinstance(self._update, Scaled) and self._nonfinite.scaled:
            self._nonfinite.scaler_stepped(step, skipped=self._update.skipped)

    def warn(self, step: int, agreed: Agreed) -> None:
        self._nonfinite.warn(step, agreed)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which only the run steps the optimizer: a step with a rank's own gradients would make models
        differ."""
        hook = self._optimizer.register_step_pre_hook(self._refuse)
        try:
            yield
        finally:
            hook.remove()

    def _refuse(self, *_: object) -> None:
        if not self._applies:
            raise RuntimeError(
                "the run steps the optimizer itself, after the all-reduce of the gradients: remove optimizer.step() "
                "from the loop (use update= for other operations on the gradients)"
            )


class Update:
    """The default update: clips, steps the optimizer and then the scheduler."""

    def __init__(
        self,
        buckets: Buckets,
        optimizer: Optimizer,
        scheduler: Any,
        clip_norm: float | None,
        scaler: GradScaler | None,
    ) -> None:
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._clip_norm = clip_norm
        self._scaler = scaler
        # A scaler unscales only the optimizer's parameters.
        self._clipped = buckets.parameters if scaler is None else optimizer_state.parameters(optimizer)

    def __call__(self) -> None:
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._clipped, self._clip_norm)
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
        if self._scheduler is not None:
            self._scheduler.step()


class Scaled:
    """An update with gradients of a scaled loss.

    It replaces its scaler in the training state, so that it notices when another scale is loaded.
    """

    def __init__(self, update: Callable[[], None], scaler: GradScaler, optimizer: Optimizer, buckets: Buckets) -> None:
        self._update = update
        self._scaler = scaler
        self._optimizer = optimizer
        self._one = torch.ones((), device=buckets.device)
        self._scale: float | None = None
        """The scale after the last step. Reading it waits for the device, so each step reads it once."""
        self.skipped = False
        """True if the scaler found an overflow in the last step and skipped it."""

    def __call__(self) -> None:
        self._scaler.scale(self._one)  # a scaler has no scale before its first call; a rank without samples made none
        before = self._scaler.get_scale() if self._scale is None else self._scale
        self._scaler.unscale_(self._optimizer)
        self._update()
        self._scaler.update()
        self._scale = self._scaler.get_scale()
        self.skipped = self._scale < before

    def state_dict(self) -> dict[str, Any]:
        return self._scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._scaler.load_state_dict(state_dict)
        self._scale = None
