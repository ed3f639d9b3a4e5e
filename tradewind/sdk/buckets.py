"""The gradients of a run in flat buckets, which are all-reduced one after the other.

Parameters lie in reverse order, since backward ends with the first layers: a bucket could be all-reduced while backward
still computes the next one. The last bucket is complete when backward is. Behind its gradients it has one number for
each parameter, how many ranks used it, and the control words: so no rank has a step before its last all-reduce. A
parameter that no rank used has no gradient, and the optimizer does not change it, as in one process.

There are two sets of buckets, used in turn: the result of a step stays whole during the next all-reduce, so that
another rank can send it to a rank that missed it. A rank's own gradients stay where autograd left them until the result
has arrived: a broken all-reduce destroys its input.
"""

import sys
import zlib
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from typing import Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tradewind.sdk import control_words
from tradewind.sdk.training_state import optimizer_state

BUCKET_BYTES = sys.maxsize
"""Size at which a bucket is full; today there is one bucket. While nothing overlaps with backward, each further bucket
costs one latency of the network and hides nothing."""
_requires_grad: Final = attrgetter("requires_grad")


def parameters_of(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """The parameters of the model, then those that only the optimizer has."""
    return list(dict.fromkeys([*model.parameters(), *optimizer_state.parameters(optimizer)]))


class Buckets:
    def __init__(self, parameters: Iterable[Tensor], *, copies: bool = False) -> None:
        """`copies` is True if the update may write to the gradients, as clipping does: then it gets a copy."""
        self._given = list(parameters)
        self.parameters = [parameter for parameter in self._given if parameter.requires_grad]
        self._frozen = [parameter for parameter in self._given if not parameter.requires_grad]
        self.device = _device_of(self.parameters)
        self._layout = _Layout(self.parameters[::-1], BUCKET_BYTES)
        self._sets = [_Set(self._layout), _Set(self._layout)]
        self._unused: set[int] = set()
        """Places of parameters for which this rank has no gradient in the current step."""
        self._used_all_in: int | None = None
        """The step in which this rank used every parameter: then the other ranks' numbers do not matter."""
        self._copy = torch.zeros(self._layout.floats, dtype=torch.float32, device=self.device) if copies else None
        self._copied_views = self._layout.views_of(self._copy) if self._copy is not None else []

    @property
    def count(self) -> int:
        return len(self._layout.spans)

    @property
    def trained(self) -> str:
        """The number of trained parameters, and a checksum that identifies them."""
        which = "".join("01"[parameter.requires_grad] for parameter in self._given)
        return f"{len(self.parameters)} of {len(self._given)} parameters [{zlib.crc32(which.encode()):08x}]"

    @property
    def layout(self) -> str:
        """The division of gradients for the all-reduce; it must be the same on all ranks."""
        return f"gradients in {self.count} bucket{'' if self.count == 1 else 's'}, last parameter first"

    @property
    def gradient_bytes(self) -> int:
        """Bytes that each rank all-reduces in every step, without the control words."""
        return self._layout.floats * torch.float32.itemsize

    # One step, bucket by bucket.

    def collect(self, step: int, number: int) -> None:
        """Copies autograd's gradients into a bucket; a parameter without gradient counts as zero."""
        if number == 0:
            self._refuse_unfrozen()
            self._unused.clear()
        first, last = self._layout.spans[number]
        views = self._sets[step % 2].views[first:last]
        found = [parameter.grad for parameter in self._layout.parameters[first:last]]
        there = [grad for grad in found if grad is not None]
        if len(there) < len(found):
            for place, (view, grad) in enumerate(zip(views, found, strict=True), first):
                if grad is None:
                    view.zero_()
                    self._unused.add(place)
            views = [view for view, grad in zip(views, found, strict=True) if grad is not None]
        if there:
            _copy(there, views)
        if number == self.count - 1:
            self._count_used(step)

    def total(self, step: int, number: int) -> Tensor:
        """The sum of all gradients in a bucket: the cheapest check that all of them are finite."""
        return self._sets[step % 2].gradients[number].sum()

    def clear(self, step: int) -> None:
        self._sets[step % 2].flat.zero_()

    def bucket(self, step: int, number: int, world_size: int) -> Tensor:
        """The tensor to all-reduce. The last bucket ends with the control words of a world of this size."""
        held = self._sets[step % 2]
        if number < self.count - 1:
            return held.gradients[number]
        return held.flat[self._layout.borders[number] : self._layout.words_begin + control_words.size(world_size)]

    def words(self, step: int) -> Tensor:
        return self._sets[step % 2].words

    def use(self, step: int) -> None:
        """Sets the all-reduced gradients of the step on the parameters."""
        held = self._sets[step % 2]
        views = held.views
        if self._copy is not None:
            self._copy.copy_(held.flat[: self._layout.floats])
            views = self._copied_views
        for view, parameter in zip(views, self._layout.parameters, strict=True):
            parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)
        if self._used_all_in != step and not bool(held.used.all()):
            for ranks, parameter in zip(held.used.tolist(), self._layout.parameters, strict=True):
                if ranks == 0:
                    parameter.grad = None

    def drop(self) -> None:
        """Drops autograd's gradients, so that the next backward begins another step."""
        self._used_all_in = None
        for parameter in self.parameters:
            parameter.grad = None

    # All buckets of a step.

    def whole(self, step: int) -> Tensor:
        """All buckets of a step, with room for the control words of the largest world."""
        return self._sets[step % 2].flat

    def copy_of(self, step: int, world_size: int) -> Tensor:
        return self.whole(step)[: self._layout.words_begin + control_words.size(world_size)].clone()

    def put(self, step: int, copy: Tensor) -> None:
        self.whole(step)[: copy.numel()].copy_(copy)

    def give_up(self, step: int) -> Tensor:
        """Replaces the buckets of a step, because an abandoned operation may still write to them. Returns the old."""
        lost = self.whole(step)
        self._sets[step % 2] = _Set(self._layout)
        return lost

    # Autograd's gradients in the model.

    def some(self) -> tuple[Tensor, Tensor] | None:
        """Any parameter that has a gradient, and that gradient."""
        return next(((each, each.grad) for each in self.parameters if each.grad is not None), None)

    def grew_from(self, before: tuple[Tensor, Tensor] | None) -> bool:
        """True if autograd added to the gradients of before; after zero_grad(), it begins new ones."""
        return self.some() is not None if before is None else before[0].grad is before[1]

    def _count_used(self, step: int) -> None:
        used = self._sets[step % 2].used
        if self._unused:
            used.copy_(torch.tensor([place not in self._unused for place in range(used.numel())]))
            self._used_all_in = None
        else:
            used.fill_(1.0)
            self._used_all_in = step

    def _refuse_unfrozen(self) -> None:
        if self._frozen and any(map(_requires_grad, self._frozen)):
            raise RuntimeError(
                "parameters that were frozen when the run was created require gradients now, and the buckets have no "
                "room for them: before tradewind.Run(...), unfreeze all parameters that are ever trained, and freeze "
                "them after it"
            )


class _Layout:
    """The place of each parameter, the same in both sets and on all ranks."""

    def __init__(self, parameters: list[Tensor], bucket_bytes: int) -> None:
        self.parameters = parameters
        self.sizes = [parameter.numel() for parameter in parameters]
        self.floats = sum(self.sizes)
        self.words_begin = self.floats + len(parameters)
        self.spans: list[tuple[int, int]] = []
        """By bucket: [first, last) of its parameters."""
        self.borders = [0]
        """Offsets at which buckets begin, and the end of the last one."""
        first = floats = 0
        for place, size in enumerate(self.sizes, 1):
            floats += size
            if (floats - self.borders[-1]) * torch.float32.itemsize >= bucket_bytes or place == len(parameters):
                self.spans.append((first, place))
                self.borders.append(floats)
                first = place

    def views_of(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat[: self.floats], self.sizes)
        return [part.view(parameter.shape) for part, parameter in zip(parts, self.parameters, strict=True)]


class _Set:
    """The buckets of every other step: one flat tensor, and views of it."""

    def __init__(self, layout: _Layout) -> None:
        floats = layout.words_begin + control_words.MOST
        self.flat = torch.zeros(floats, dtype=torch.float32, device=layout.parameters[0].device)
        self.views = layout.views_of(self.flat)
        """By parameter."""
        self.gradients = [self.flat[begin:end] for begin, end in pairwise(layout.borders)]
        """By bucket."""
        self.used = self.flat[layout.floats : layout.words_begin]
        """By parameter: how many ranks used it."""
        self.words = self.flat[layout.words_begin :]


def _device_of(parameters: list[Tensor]) -> torch.device:
    if not parameters:
        raise ValueError("the model has no parameter that requires a gradient")
    if any(parameter.is_complex() for parameter in parameters):
        raise ValueError(
            "the model has complex parameters, but the all-reduce adds up real numbers: "
            "make them real parameters, and use torch.view_as_complex where the model needs complex ones"
        )
    devices = {parameter.device for parameter in parameters}
    if len(devices) > 1:
        raise ValueError(f"all parameters must be on one device, not on {', '.join(sorted(map(str, devices)))}")
    return devices.pop()


def _copy(gradients: list[Tensor], views: list[Tensor]) -> None:
    try:
        torch._foreach_copy_(views, gradients)
    except (RuntimeError, NotImplementedError):
        if all(gradient.layout is torch.strided for gradient in gradients):
            raise
        raise TypeError(
            "a parameter has a sparse gradient, but the all-reduce needs dense ones: "
            "create its layer with sparse=False (SparseAdam cannot be used)"
        ) from None
