"""The tensors of a state and the comparison with those of another state: pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tradewind.sdk.errors import StateDoesNotFit


class Entry(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str
    on_cpu: bool
    """True to create a missing tensor on the CPU. Not compared: the same state may be on another device."""

    def __str__(self) -> str:
        return f"{self.dtype} of {'×'.join(map(str, self.shape)) or 'one element'}"


@lru_cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise StateDoesNotFit(f"the state uses dtype {name!r}, which this torch does not have")
    return dtype


def entry(name: str, tensor: Tensor) -> Entry:
    return Entry(name, tuple(tensor.shape), dtype_name(tensor.dtype), tensor.device.type == "cpu")


def entry_nbytes(there: Entry) -> int:
    elements = 1
    for size in there.shape:
        elements *= size
    return elements * dtype_named(there.dtype).itemsize


def require_same(there: Sequence[Entry], here: Sequence[Entry]) -> None:
    for theirs, ours in zip(there, here, strict=False):
        if theirs.name != ours.name:
            raise StateDoesNotFit(f"the state has {theirs.name!r} where this script has {ours.name!r}")
        if (theirs.shape, theirs.dtype) != (ours.shape, ours.dtype):
            raise StateDoesNotFit(f"{theirs.name!r} is {theirs} in the state and {ours} in this script")
    if len(there) > len(here):
        raise StateDoesNotFit(only_in_state(there[len(here)].name))
    if len(here) > len(there):
        raise StateDoesNotFit(only_in_script(here[len(there)].name))


def only_in_state(name: str) -> str:
    return f"the state has {name!r}, which this script does not have"


def only_in_script(name: str) -> str:
    return f"this script has {name!r}, which the state does not have"


def shard_bounds(shard: int, of: int, nbytes: int) -> tuple[int, int]:
    """Returns [first, last) of the bytes of one of `of` shards; together the shards have all bytes, once each."""
    if not 0 <= shard < of:
        raise ValueError(f"there is no shard {shard} of {of}")
    return shard * nbytes // of, (shard + 1) * nbytes // of
