"""A group of ranks on gloo that can be left at any moment.

gloo cannot abort a collective whose peer is dead: only the neighbours of the dead rank get an error. This module calls
shutdown(2) on the group's own sockets, which it finds by the ports that the members wrote to the store. In about one of
a hundred cases an operation still hangs; then its buffer is abandoned.
"""

import contextlib
import ctypes
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllreduceOptions, BroadcastOptions, ProcessGroupGloo, ReduceOp, Store, Work

from tradewind.sdk.groups.group import NOT_CONNECTED

BUILD_TIMEOUT: Final = timedelta(seconds=30)
_OPERATION_TIMEOUT: Final = timedelta(hours=12)
_SLICE: Final = timedelta(milliseconds=50)
_WALK_AWAY_S: Final = 0.01
_ADDRESS_BYTES: Final = 128
_libc: Any = ctypes.CDLL(None)
_gloo: Any = ProcessGroupGloo  # torch's type stub lacks most of its methods


class GlooGroup:
    """A group on gloo. One thread at a time uses it; any thread may call `cut`."""

    def __init__(self, store: Store, rank: int, size: int, address: str, *, tried: bool = True) -> None:
        """Waits for all members, at most BUILD_TIMEOUT. Call it in a thread that may hang.

        With `tried`, a small all-reduce first shows that all members can be reached.
        """
        options = _gloo._Options()
        options._devices = [_device(address)]
        options._timeout = BUILD_TIMEOUT
        options._threads = 2
        self.rank = rank
        self.size = size
        meeting = Meeting(store, size)
        self._group = _gloo(meeting, rank, size, options)
        self._ports = frozenset(_port(meeting.get(f"0/{peer}")) for peer in range(size))
        self._is_cut = threading.Event()
        if tried:
            self._try(time.monotonic() + BUILD_TIMEOUT.total_seconds())

    def all_reduce(self, flat: Tensor) -> Work:
        return self._reduce(flat, ReduceOp.SUM)

    def all_reduce_max(self, values: Tensor) -> Work:
        return self._reduce(values, ReduceOp.MAX)

    def broadcast(self, tensor: Tensor, source: int) -> Work:
        options = BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        options.timeout = _OPERATION_TIMEOUT
        work: Work = self._group.broadcast([tensor], options)
        return work

    def _try(self, until_s: float) -> None:
        trial = torch.zeros(1)
        if not self.finish(self.all_reduce(trial), lambda: time.monotonic() > until_s):
            self.leave_behind(trial)
            raise RuntimeError(NOT_CONNECTED)

    def _reduce(self, tensor: Tensor, operation: Any) -> Work:
        options = AllreduceOptions()
        options.reduceOp = operation
        options.timeout = _OPERATION_TIMEOUT
        work: Work = self._group.allreduce([tensor], options)
        return work

    def finish(self, work: Work, halted: Callable[[], bool], on_wait: Callable[[float], None] | None = None) -> bool:
        """Waits for an operation. False if it failed, or if it hangs after a halt.

        Calls `on_wait` repeatedly with the seconds waited so far.
        """
        began_s = time.monotonic()
        halted_s: float | None = None
        while True:
            try:
                if work.wait(_SLICE if halted_s is None else timedelta(seconds=_WALK_AWAY_S)):
                    return True
            except RuntimeError:
                if work.is_completed():
                    return _succeeded(work)  # it may have ended just after the wait
            now_s = time.monotonic()
            if halted() or self._is_cut.is_set():
                if halted_s is not None and now_s - halted_s >= _WALK_AWAY_S:
                    return False
                halted_s = halted_s if halted_s is not None else now_s
            elif on_wait is not None:
                on_wait(now_s - began_s)

    def leave_behind(self, *buffers: Tensor) -> None:
        """Keeps group and buffers in memory for good: an operation may write to them even while the interpreter ends.

        Destroying the group would wait for the operation, so the script could not end before its peer.
        """
        for each in (self._group, *buffers):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))

    def cut(self) -> None:
        """Makes the collectives of this group fail, here and on the neighbours. Any thread may call it."""
        if self._is_cut.is_set():
            return
        self._is_cut.set()
        shut_sockets(self._ports)


def build(store: Store, rank: int, size: int, address: str, *, tried: bool) -> GlooGroup:
    return GlooGroup(store, rank, size, address, tried=tried)


def _succeeded(work: Work) -> bool:
    """True if an ended operation succeeded. `is_success` would log a warning."""
    try:
        return bool(work.wait(_SLICE))
    except RuntimeError:
        return False


def _device(address: str) -> Any:
    return _gloo.create_device(hostname=address) if address else _gloo.create_default_device()


def shut_sockets(ports: frozenset[int]) -> None:
    """Shuts this process's TCP connections that have one of the ports at either end.

    It creates no socket objects: with a default timeout set by the script, creating one changes the connection.
    """
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            connection = os.dup(int(entry.name))
            try:
                if ports & _ends(connection):
                    _libc.shutdown(connection, socket.SHUT_RDWR)
            finally:
                os.close(connection)


def _ends(connection: int) -> set[int]:
    """The two ports of a TCP connection; empty for a listening socket and for any other socket."""
    own, peer = _asked(_libc.getsockname, connection), _asked(_libc.getpeername, connection)
    return {own, peer} if own is not None and peer is not None else set()


def _asked(ask: Any, connection: int) -> int | None:
    address = ctypes.create_string_buffer(_ADDRESS_BYTES)
    size = ctypes.c_uint32(_ADDRESS_BYTES)
    if ask(connection, address, ctypes.byref(size)) != 0:
        return None
    family = int.from_bytes(address.raw[:2], sys.byteorder)
    return int.from_bytes(address.raw[2:4], "big") if family in (socket.AF_INET, socket.AF_INET6) else None


def _port(address: bytes) -> int:
    """The port in gloo's address: length of the host's name, the name, length of the address, the address itself."""
    (name_bytes,) = struct.unpack_from("=Q", address)
    return int.from_bytes(address[18 + name_bytes : 20 + name_bytes], "big")


class Meeting(Store):
    """The subset of a store that gloo needs to connect a group."""

    def __init__(self, store: Store, size: int) -> None:
        super().__init__()
        self._store: Any = store  # torch's type stub does not accept bytes
        self._size = size
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        if key not in self._known:
            folder, _, rank = key.rpartition("/")
            keys = [f"{folder}/{peer}" for peer in range(self._size)] if rank.isdigit() else [key]
            self._known.update(zip(keys, self._store.multi_get(keys), strict=True))
        return self._known[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True
