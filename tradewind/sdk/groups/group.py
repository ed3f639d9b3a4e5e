"""The interface of a group: the collectives of one world, and the ranks in it that wait for the state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch._C._distributed_c10d import Work


class Group(Protocol):
    """The ranks of one world, as far as training needs them."""

    rank: int
    size: int

    def all_reduce(self, flat: Tensor) -> Work | None: ...
    def all_reduce_max(self, values: Tensor) -> Work | None: ...
    def broadcast(self, tensor: Tensor, source: int) -> Work | None: ...
    def finish(self, work: Any, halted: Callable[[], bool], on_wait: Callable[[float], None] | None = None) -> bool: ...
    def leave_behind(self, *buffers: Tensor) -> None: ...
    def cut(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Joiner:
    """Where a rank that enters without the state wants it sent."""

    rank: int
    address: tuple[str, int]
    token: str
    source: str = ""
    """This worker's own address: the one that the joining rank expects its peers to connect from."""


@dataclass(frozen=True, slots=True)
class Built:
    group: Group
    joiners: tuple[Joiner, ...] = ()
