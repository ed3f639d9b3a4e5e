"""A group of ranks on NCCL, for GPUs. It has never run on a GPU: tests give it another backend.

Unlike gloo, NCCL can abort a collective, so this module shuts no sockets and abandons no buffers. docs/decisions/0016
explains why each step waits for its all-reduce, and what has never been run.
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

from tradewind.sdk.groups.group import NOT_CONNECTED

_BUILD_S: Final = 30.0
_OPERATION_TIMEOUT: Final = timedelta(hours=12)
"""Timeout of every operation of a group. The master detects silent ranks much earlier."""
_LOOK_S: Final = 0.0005
_ENDED: Final = timedelta(seconds=10)
"""Timeout for `wait` on an ended operation: with any timeout, `wait` raises the operation's error."""
_ON_ERROR: Final = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
_NOTHING: Final = "0"
"""The value with which the process survives a lost peer; with torchrun's value, torch ends the process."""


class NcclGroup:
    """A group on NCCL. One thread at a time uses it; any thread may call `cut`."""

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
        # An abort also ends an operation, without an error.
        return not self._is_cut and _succeeded(work) and not self._is_cut

    def leave_behind(self, *buffers: Tensor) -> None:
        """Does nothing: an aborted operation does not write any more."""

    def cut(self) -> None:
        with self._cutting:
            if self._is_cut:
                return
            self._is_cut = True
        self._group.abort()

    def _try(self, until_s: float) -> None:
        """Runs a small all-reduce: NCCL connects the ranks with the first operation."""
        if not self.finish(self.all_reduce(torch.zeros(1, device=self._device)), lambda: time.monotonic() > until_s):
            raise RuntimeError(NOT_CONNECTED)

    def _reduce(self, tensor: Tensor, operation: Any) -> Work:
        options = AllreduceOptions()
        options.reduceOp = operation
        work: Work = self._group.allreduce([tensor], options)
        return work


def build(device: torch.device, store: Store, rank: int, size: int, _address: str, *, tried: bool) -> NcclGroup:
    """Builds a group in a new thread, which must select its GPU.

    It ignores `tried` and always tries the group: NCCL connects with its first operation, and only connected groups can
    be aborted.
    """
    torch.cuda.set_device(device)
    return NcclGroup(store, rank, size, device)


def _succeeded(work: Any) -> bool:
    """True if an ended operation succeeded. NCCL does not implement `is_success` any more."""
    try:
        work.wait(_ENDED)
    except RuntimeError:
        return False
    return True


def _backend() -> Any:
    return vars(torch._C._distributed_c10d)["ProcessGroupNCCL"]  # torch for CPUs has none
