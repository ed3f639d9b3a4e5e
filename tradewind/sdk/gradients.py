"""The gradients of a model in one flat buffer, in an order that depends on the model only.

There are two buffers, used in turn: the sum of a step stays whole while the next one is being summed, so that a rank
that missed it can still be given it. A rank's own gradients stay where autograd left them until the sum is there: a sum
that breaks has destroyed its input.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter


class Gradients:
    def __init__(self, parameters: Iterable[Parameter], tail_floats: int) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if not self.parameters:
            raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
        devices = {parameter.device for parameter in self.parameters}
        if len(devices) > 1:
            raise ValueError(f"all parameters must be on one device, not on {', '.join(sorted(map(str, devices)))}")
        self.device = devices.pop()
        self.floats = sum(parameter.numel() for parameter in self.parameters)
        self._tail_floats = tail_floats
        self._buffers = [self._new_buffer(), self._new_buffer()]
        self._views = [self._split(buffer) for buffer in self._buffers]

    @property
    def summed_bytes(self) -> int:
        """In every step, by each rank; without the tail."""
        return self.floats * self._buffers[0].element_size()

    def buffer(self, step: int) -> Tensor:
        """The gradient and, after it, room for the tail."""
        return self._buffers[step % 2]

    def tail(self, step: int) -> Tensor:
        return self._buffers[step % 2][self.floats :]

    def gather(self, step: int) -> None:
        """Copies what autograd left into the buffer; a parameter without gradient counts as zero."""
        views: list[Tensor] = []
        found: list[Tensor] = []
        for view, parameter in zip(self._views[step % 2], self.parameters, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                views.append(view)
                found.append(parameter.grad)
        if found:
            torch._foreach_copy_(views, found)

    def clear(self, step: int) -> None:
        self._buffers[step % 2].zero_()

    def use(self, step: int) -> None:
        """Gives the optimizer the sum of the step."""
        for view, parameter in zip(self._views[step % 2], self.parameters, strict=True):
            parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)

    def drop(self) -> None:
        """What autograd finds next is the beginning of another step."""
        for parameter in self.parameters:
            parameter.grad = None

    def give_up(self, step: int) -> Tensor:
        """An operation that nobody waits for may still write to the buffer: it gets a new one. Returns the old."""
        lost = self._buffers[step % 2]
        self._buffers[step % 2] = self._new_buffer()
        self._views[step % 2] = self._split(self._buffers[step % 2])
        return lost

    def _new_buffer(self) -> Tensor:
        return torch.zeros(self.floats + self._tail_floats, dtype=torch.float32, device=self.device)

    def _split(self, buffer: Tensor) -> list[Tensor]:
        parts = torch.split(buffer[: self.floats], [parameter.numel() for parameter in self.parameters])
        return [part.view(parameter.shape) for part, parameter in zip(parts, self.parameters, strict=True)]
