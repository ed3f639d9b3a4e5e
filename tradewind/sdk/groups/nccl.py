"""A group of ranks on NCCL: the GPU's counterpart of gloo.py. It has never met a GPU: tests give it another backend.

What differs: an abort gets a rank out of a collective, so there are no sockets to find and no buffer to give up. Why
each step waits for its all-reduce, and what else has not been run: docs/decisions/0016.
"""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllreduceOptions, BroadcastOptions, ReduceOp, Store, Work

_BUILD_S: Final = 30.0
_OPERATION_TIMEOUT: Final = timedelta(hours=12)
"""The group's own: NCCL knows no other. Whoever is silent for longer than steps take is noticed by other means."""
_LOOK_S: Final = 0.0005
_ENDED: Final = timedelta(seconds=10)
"""For an operation that is over: any timeout at all makes `wait` raise what went wrong with it."""
_ON_ERROR: Final = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
_NOTHING: Final = "0"
"""As torchrun sets it, torch ends the process when a peer is lost; and survivors are what it is all about."""


class NcclGroup:
    """Used by one thread at a time, but for `cut`."""

    def __init__(self, store: Store, rank: int, size: int, device: torch.device) -> None:
        os.environ[_ON_ERROR] = _NOTHING
        backend = _backend()
        options = backend.Options()
        options._timeout = _OPERATION_TIMEOUT
        self.rank = rank
        self.size = size
        self._device = device
        self._is_cut = False
        self._cutting = threading.Lock()
        self._group = backend(store, rank, size, options)
        self._try(time.monotonic() + _BUILD_S)

    def all_reduce(self, flat: Tensor) -> Work:
        return self._reduce(flat, ReduceOp.SUM)

    def all_reduce_max(self, values: Tensor) -> Work:
        moved = values.to(self._device)
        work = self._reduce(moved, ReduceOp.MAX)
        work.wait()
        values.copy_(moved)
        return work

    def broadcast(self, tensor: Tensor, source: int) -> Work:
        options = BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        moved = tensor.to(self._device)
        work: Work = self._group.broadcast([moved], options)
        if moved is not tensor:
            work.wait()
            tensor.copy_(moved)
        return work

    def finish(self, work: Any, halted: Callable[[], bool], on_wait: Callable[[float], None] | None = None) -> bool:
        began_s = time.monotonic()
        while not work.is_completed():
            if halted() or self._is_cut:
                self.cut()
                return False
            if on_wait is not None:
                on_wait(time.monotonic() - began_s)
            time.sleep(_LOOK_S)
        # An abort ends an operation too, and no error tells of it.
        return not self._is_cut and _succeeded(work) and not self._is_cut

    def leave_behind(self, *buffers: Tensor) -> None:
        """An aborted operation writes no more."""

    def cut(self) -> None:
        with self._cutting:
            if self._is_cut:
                return
            self._is_cut = True
        self._group.abort()

    def _try(self, until_s: float) -> None:
        """The first operation is what brings the ranks together."""
        if not self.finish(self.all_reduce(torch.zeros(1, device=self._device)), lambda: time.monotonic() > until_s):
            raise RuntimeError("the ranks of the group did not come together")

    def _reduce(self, tensor: Tensor, operation: Any) -> Work:
        options = AllreduceOptions()
        options.reduceOp = operation
        work: Work = self._group.allreduce([tensor], options)
        return work


def build(device: torch.device, store: Store, rank: int, size: int, _address: str, *, tried: bool) -> NcclGroup:
    """In a thread of its own, which would else use the first GPU, whichever is this rank's.

    It is tried in any case: NCCL connects with its first operation, and what is not connected cannot be aborted."""
    torch.cuda.set_device(device)
    return NcclGroup(store, rank, size, device)


def _succeeded(work: Any) -> bool:
    """Of an operation that has ended. `is_success` is not implemented by NCCL any more."""
    try:
        work.wait(_ENDED)
    except RuntimeError:
        return False
    return True


def _backend() -> Any:
    return vars(torch._C._distributed_c10d)["ProcessGroupNCCL"]  # torch for CPUs has none
