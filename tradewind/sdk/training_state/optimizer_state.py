"""The state of an optimizer: its parameters in order, their tensors, and the options of its groups.

These functions read and write in place. `Optimizer.load_state_dict` would replace tensors and cast them to the
parameter's dtype; these functions preserve every bit, and create missing tensors as the optimizer would.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tradewind.sdk.training_state.layout import Entry, dtype_named
from tradewind.sdk.training_state.tensor_bytes import read_into

Slot = tuple[int, str]
"""The place of a parameter in the optimizer, and the key of one of the optimizer's tensors for it."""


class Options(NamedTuple):
    """An optimizer's state, without its tensors for each parameter."""

    groups: list[dict[str, Any]]
    plain: dict[int, dict[Any, Any]]
    """By parameter: values that are no tensors."""
    loose: dict[Any, Any]
    """State that belongs to no parameter."""


def parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def rates(optimizer: Optimizer) -> list[float]:
    """The learning rate of each group; with a schedule, its initial learning rate."""
    return [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups if "lr" in group]


def slots(optimizer: Optimizer) -> Iterator[tuple[Slot, Tensor]]:
    """Yields the optimizer's tensors. They exist only after the first step of a parameter that has a gradient."""
    for index, parameter in enumerate(parameters(optimizer)):
        state: dict[Any, Any] = optimizer.state.get(parameter, {})
        for key in sorted(state, key=str):
            if _is_slot(key, value := state[key]):
                yield (index, key), value


def options(optimizer: Optimizer) -> Options:
    known: dict[Any, Any] = optimizer.state
    plain = {
        index: {key: value for key, value in known[parameter].items() if not _is_slot(key, value)}
        for index, parameter in enumerate(parameters(optimizer))
        if parameter in known
    }
    return Options(
        groups=[{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups],
        plain={index: values for index, values in plain.items() if values},
        loose={key: value for key, value in known.items() if not isinstance(key, Tensor)},
    )


def write_slots(optimizer: Optimizer, there: Sequence[tuple[Slot, Entry, Tensor]]) -> None:
    """Gives the optimizer these tensors and removes all others; existing tensors stay the same objects."""
    owners = parameters(optimizer)
    named = {slot for slot, _, _ in there}
    for index, parameter in enumerate(owners):
        state = optimizer.state.get(parameter, {})
        for key in [key for key, value in state.items() if _is_slot(key, value) and (index, key) not in named]:
            del state[key]
    for (index, key), entry, source in there:
        state = optimizer.state[owners[index]]
        if not _fits(state.get(key), entry):
            state[key] = _created(owners[index], entry)
        read_into(state[key], source)


def write_options(optimizer: Optimizer, there: Options) -> None:
    for group, theirs in zip(optimizer.param_groups, there.groups, strict=True):
        for key, value in theirs.items():
            _put(group, key, value)
    for index, parameter in enumerate(parameters(optimizer)):
        values = there.plain.get(index, {})
        state = optimizer.state.get(parameter, {})
        for key in [key for key, value in state.items() if not _is_slot(key, value) and key not in values]:
            del state[key]
        if values:
            optimizer.state[parameter].update(values)
        elif not state:
            optimizer.state.pop(parameter, None)
    known: dict[Any, Any] = optimizer.state
    for loose in [key for key in known if not isinstance(key, Tensor) and key not in there.loose]:
        del known[loose]
    known.update(there.loose)


def _is_slot(key: object, value: object) -> bool:
    return isinstance(value, Tensor) and isinstance(key, str)


def _fits(tensor: object, entry: Entry) -> bool:
    if not isinstance(tensor, Tensor):
        return False
    return tuple(tensor.shape) == entry.shape and tensor.dtype == dtype_named(entry.dtype)


def _created(owner: Tensor, entry: Entry) -> Tensor:
    device = torch.device("cpu") if entry.on_cpu else owner.device
    dtype = dtype_named(entry.dtype)
    if entry.shape == tuple(owner.shape):
        return torch.empty_like(owner.detach(), dtype=dtype, device=device)
    return torch.empty(entry.shape, dtype=dtype, device=device)


def _put(group: dict[str, Any], key: str, value: object) -> None:
    current = group.get(key)
    if isinstance(current, Tensor) and isinstance(value, Tensor):
        current.copy_(value)
    else:
        group[key] = value
