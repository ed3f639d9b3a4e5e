"""The gradients of a run in one flat buffer, in an order that depends on the model and the optimizer only.

There are two buffers, used in turn: the sum of a step stays whole while the next one is being summed, so that a rank
that missed it can still be given it. A rank's own gradients stay where autograd left them until the sum is there: a sum
that breaks has destroyed its input.

Behind the gradients each parameter has one number, how many ranks used it: one that nobody used has no gradient, and
the optimizer leaves it alone, as it would in one process.
"""

import zlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tradewind.sdk.training_state import optimizer_state

_requires_grad: Final = attrgetter("requires_grad")


def parameters_of(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """The model's, and then those that only the optimizer has."""
    return list(dict.fromkeys([*model.parameters(), *optimizer_state.parameters(optimizer)]))


class Gradients:
    """`copies`: whoever applies a sum may write to it, as clipping does, so it is given a copy."""

    def __init__(self, parameters: Iterable[Tensor], tail_floats: int, *, copies: bool = False) -> None:
        self._given = list(parameters)
        self.parameters = [parameter for parameter in self._given if parameter.requires_grad]
        self._frozen = [parameter for parameter in self._given if not parameter.requires_grad]
        if not self.parameters:
            raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
        if any(parameter.is_complex() for parameter in self.parameters):
            raise ValueError(
                "the model has complex parameters, and gradients are summed as real numbers: "
                "keep them as real ones, and use torch.view_as_complex where they are needed"
            )
        devices = {parameter.device for parameter in self.parameters}
        if len(devices) > 1:
            raise ValueError(f"all parameters must be on one device, not on {', '.join(sorted(map(str, devices)))}")
        self.device = devices.pop()
        self._floats = sum(parameter.numel() for parameter in self.parameters)
        self.tail_begins = self._floats + len(self.parameters)
        self._tail_floats = tail_floats
        self._buffers = [self._new_buffer(), self._new_buffer()]
        self._views = [self._split(buffer) for buffer in self._buffers]
        self._used = [self._counts(buffer) for buffer in self._buffers]
        self._used_all_in: int | None = None
        """The step in which this rank used every parameter: then no other rank has to be asked."""
        self._copy = torch.zeros(self._floats, dtype=torch.float32, device=self.device) if copies else None
        self._copied_views = self._split(self._copy) if self._copy is not None else []

    @property
    def trained(self) -> str:
        """How many parameters are, and which."""
        which = "".join("01"[parameter.requires_grad] for parameter in self._given)
        return f"{len(self.parameters)} of {len(self._given)} parameters [{zlib.crc32(which.encode()):08x}]"

    @property
    def summed_bytes(self) -> int:
        """In every step, by each rank; without the tail."""
        return self._floats * self._buffers[0].element_size()

    def buffer(self, step: int) -> Tensor:
        """All that is summed, and room for the tail."""
        return self._buffers[step % 2]

    def tail(self, step: int) -> Tensor:
        return self._buffers[step % 2][self.tail_begins :]

    def gather(self, step: int) -> None:
        """Copies what autograd left into the buffer; a parameter without gradient counts as zero."""
        if self._frozen and any(map(_requires_grad, self._frozen)):
            raise RuntimeError(
                "parameters that were frozen when the run was made require gradients now, and the ranks have no room "
                "to sum them: unfreeze all that is ever trained before tradewind.Run(...), and freeze it after"
            )
        views, used = self._views[step % 2], self._used[step % 2]
        found = [parameter.grad for parameter in self.parameters]
        there = [grad for grad in found if grad is not None]
        if len(there) == len(found):
            used.fill_(1.0)
            self._used_all_in = step
        else:
            for view, grad in zip(views, found, strict=True):
                if grad is None:
                    view.zero_()
            views = [view for view, grad in zip(views, found, strict=True) if grad is not None]
            used.copy_(torch.tensor([grad is not None for grad in found]))
            self._used_all_in = None
        if there:
            _copy(there, views)

    def not_finite(self, step: int) -> Tensor:
        """Whether anything of what this rank gathered is NaN or infinite: one number, left on the device.

        The sum of all values of this rank is the cheapest look at them. Finite gradients so large that this sum
        overflows float32 count as not finite, too. The all-reduce may overflow where no rank's own sum does."""
        return self._buffers[step % 2][: self._floats].sum().isfinite().logical_not()

    def some(self) -> tuple[Tensor, Tensor] | None:
        """A parameter that has a gradient, and that gradient."""
        return next(((each, each.grad) for each in self.parameters if each.grad is not None), None)

    def grew_from(self, before: tuple[Tensor, Tensor] | None) -> bool:
        """Autograd adds to the gradient that is there; whoever clears it makes autograd begin another."""
        return self.some() is not None if before is None else before[0].grad is before[1]

    def clear(self, step: int) -> None:
        self._buffers[step % 2].zero_()

    def use(self, step: int) -> None:
        """Gives the optimizer the sum of the step."""
        views, used = self._views[step % 2], self._used[step % 2]
        if self._copy is not None:
            self._copy.copy_(self._buffers[step % 2][: self._floats])
            views = self._copied_views
        for view, parameter in zip(views, self.parameters, strict=True):
            parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)
        if self._used_all_in != step and not bool(used.all()):
            for ranks, parameter in zip(used.tolist(), self.parameters, strict=True):
                if ranks == 0:
                    parameter.grad = None

    def drop(self) -> None:
        """What autograd finds next is the beginning of another step."""
        self._used_all_in = None
        for parameter in self.parameters:
            parameter.grad = None

    def give_up(self, step: int) -> Tensor:
        """An operation that nobody waits for may still write to the buffer: it gets a new one. Returns the old."""
        lost = self._buffers[step % 2]
        self._buffers[step % 2] = self._new_buffer()
        self._views[step % 2] = self._split(self._buffers[step % 2])
        self._used[step % 2] = self._counts(self._buffers[step % 2])
        return lost

    def _counts(self, buffer: Tensor) -> Tensor:
        """By parameter: how many ranks used it."""
        return buffer[self._floats : self.tail_begins]

    def _new_buffer(self) -> Tensor:
        return torch.zeros(self.tail_begins + self._tail_floats, dtype=torch.float32, device=self.device)

    def _split(self, buffer: Tensor) -> list[Tensor]:
        parts = torch.split(buffer[: self._floats], [parameter.numel() for parameter in self.parameters])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self.parameters, strict=True)]


def _copy(gradients: list[Tensor], views: list[Tensor]) -> None:
    try:
        torch._foreach_copy_(views, gradients)
    except (RuntimeError, NotImplementedError):
        if all(gradient.layout is torch.strided for gradient in gradients):
            raise
        raise TypeError(
            "a parameter has a sparse gradient, and gradients are summed dense: "
            "make its layer with sparse=False (SparseAdam cannot be used)"
        ) from None
