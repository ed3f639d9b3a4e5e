"""A group of ranks on NCCL: the GPU's counterpart of gloo.py, and the only file of the SDK that no test here can run.

What differs: an abort gets a rank out of a collective, so there are no sockets to find and no buffer to give up. Why
each step waits for its sum: docs/decisions/0016.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllreduceOptions, BroadcastOptions, ReduceOp, Store, Work

BUILD_TIMEOUT: Final = timedelta(seconds=30)
_LOOK_S: Final = 0.0005


class NcclGroup:
    def __init__(self, store: Store, rank: int, size: int) -> None:
        backend: Any = vars(torch._C._distributed_c10d)["ProcessGroupNCCL"]  # torch for CPUs has none
        options = backend.Options()
        options._timeout = BUILD_TIMEOUT
        self.rank = rank
        self.size = size
        self._is_cut = False
        self._group = backend(store, rank, size, options)
        self.finish(self.sum(torch.zeros(1, device="cuda")), lambda: False)

    def sum(self, flat: Tensor) -> Work:
        return self._reduce(flat, ReduceOp.SUM)

    def largest(self, values: Tensor) -> Work:
        moved = values.cuda()
        work = self._reduce(moved, ReduceOp.MAX)
        work.wait()
        values.copy_(moved)
        return work

    def broadcast(self, tensor: Tensor, source: int) -> Work:
        options = BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        moved = tensor.cuda()
        work: Work = self._group.broadcast([moved], options)
        if moved is not tensor:
            work.wait()
            tensor.copy_(moved)
        return work

    def finish(self, work: Any, halted: Callable[[], bool], stalled: Callable[[float], None] | None = None) -> bool:
        began_s = time.monotonic()
        while not work.is_completed():
            if halted() or self._is_cut:
                self.cut()
                return False
            if stalled is not None:
                stalled(time.monotonic() - began_s)
            time.sleep(_LOOK_S)
        return bool(work.is_success()) and not self._is_cut

    def leave_behind(self, *buffers: Tensor) -> None:
        """An aborted operation writes no more."""

    def cut(self) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._group.abort()

    def _reduce(self, tensor: Tensor, operation: Any) -> Work:
        options = AllreduceOptions()
        options.reduceOp = operation
        work: Work = self._group.allreduce([tensor], options)
        return work


def build(store: Store, rank: int, size: int, _address: str) -> NcclGroup:
    return NcclGroup(store, rank, size)
