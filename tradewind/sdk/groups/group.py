"""The interface of a group: the collectives of one world, and the ranks in it that wait for the state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torch import Tensor
from torch._C._distributed_c10d import Work

NOT_CONNECTED: Final = "the ranks of the group failed to connect to each other"


class Group(Protocol):
    """The collectives of one world that training needs."""

    rank: int
    size: int

    def all_reduce(self, flat: Tensor) -> Work | None: ...
    def all_reduce_max(self, values: Tensor) -> Work | None: ...
    def broadcast(self, tensor: Tensor, source: int) -> Work | None: ...
    def finish(self, work: Any, halted: Callable[[], bool], on_wait: Callable[[float], None] | None = None) -> bool: ...
    def leave_behind(self, *buffers: Tensor) -> None: ...
    def cut(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Destination:
    """The place where a joining rank receives the state."""

    address: tuple[str, int]
    token: str
    source: str = ""
    """The address that the sender connects from, since the joining rank expects it; any address if empty."""

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


@dataclass(frozen=True, slots=True)
class JoiningRank:
    """A rank that enters without the state, and its destination."""

    rank: int
    destination: Destination


@dataclass(frozen=True, slots=True)
class Built:
    group: Group
    joining_ranks: tuple[JoiningRank, ...] = ()
