"""The builder of groups: one disposable thread for each assignment, outside of the training thread.

A constructor whose peer is dead cannot be interrupted. The builder leaves its thread and store client alone until they
fail; the next assignment uses another client, which is already connected. Every build reports its result.
"""

import atexit
import contextlib
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

import torch
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch._C._distributed_c10d import Store as TorchStore

from tradewind.protocol.trainer import Assign, Store
from tradewind.sdk.groups import gloo
from tradewind.sdk.groups.group import Built, Destination, Group, JoiningRank

STORE_TIMEOUT: Final = timedelta(seconds=30)
_LAST_WAIT_S: Final = 2.0
_KEEP_S: Final = 1.0
"""Seconds before a retired group is dropped."""
_READY: Final = 2
"""Number of idle clients: one for the next build, and one for the build after it if that one hangs."""


class MakeGroup(Protocol):
    def __call__(self, store: TorchStore, rank: int, size: int, address: str, /, *, tried: bool) -> Group: ...


class StoreClients:
    """A pool of connected store clients: connecting takes longer than any request to the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, int], list[TCPStore]] = {}

    def take(self, store: Store) -> TCPStore:
        with self._lock:
            idle = self._idle.get((store.host, store.port))
            if idle:
                return idle.pop()
        return _connect(store)

    def give_back(self, store: Store, client: TCPStore) -> None:
        with self._lock:
            self._idle.setdefault((store.host, store.port), []).append(client)

    def keep_ready(self, store: Store) -> None:
        while self._ready(store) < _READY:
            self.give_back(store, _connect(store))

    def _ready(self, store: Store) -> int:
        with self._lock:
            return len(self._idle.get((store.host, store.port), ()))


class Builder:
    def __init__(
        self,
        make_group: MakeGroup,
        on_built: Callable[[int, Built | None], None],
        listen: Callable[[Assign], tuple[int, str]],
        prepare: Callable[[JoiningRank, int], None],
        before: Callable[[Assign], None] = lambda assign: None,
    ) -> None:
        self._make_group = make_group
        self._on_built = on_built
        self._listen = listen
        self._prepare = prepare
        self._before = before
        self._clients = StoreClients()
        self._threads: list[threading.Thread] = []
        atexit.register(self.close)

    def start(self, assign: Assign) -> None:
        """Builds the group in its own thread; a world of one needs no thread."""
        if assign.world_size == 1:
            self._on_built(assign.generation, Built(LoneGroup()))
            return
        name = f"tradewind-build-{assign.generation}"
        thread = threading.Thread(target=self._run, args=(assign,), name=name, daemon=True)
        thread.start()
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]

    def close(self) -> None:
        """Waits for the builds: a thread that returns from torch's C++ code while the interpreter ends aborts it."""
        deadline_s = time.monotonic() + _LAST_WAIT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self, assign: Assign) -> None:
        built: Built | None = None
        try:
            built = self._built(assign)
        except (RuntimeError, ValueError, OSError) as error:
            print(not_built(assign.generation, error), file=sys.stderr)
        finally:
            # After an unexpected error too: the training thread waits for this call.
            self._on_built(assign.generation, built)
        if built is not None:
            with contextlib.suppress(RuntimeError):  # if the store is lost, the next world has another
                self._clients.keep_ready(assign.store)

    def _built(self, assign: Assign) -> Built:
        built = self._build(assign)
        if assign.previous and assign.previous[assign.rank] >= 0:
            senders = sum(previous >= 0 for previous in assign.previous)
            for joining_rank in built.joining_ranks:
                self._prepare(joining_rank, senders)
        return built

    def _build(self, assign: Assign) -> Built:
        self._before(assign)
        client = self._clients.take(assign.store)
        store = PrefixStore(f"tradewind{assign.store.prefix}/{assign.generation}", client)
        entering = [rank for rank, previous in enumerate(assign.previous) if previous < 0]
        if assign.rank in entering:
            port, token = self._listen(assign)
            store.set(f"state/{assign.rank}", json.dumps([assign.address, port, token]))
        # In a repair, all ranks wait for the first all-reduce, which shows as much as a trial of the group.
        tried = assign.entry != "repair"
        group = self._make_group(store, assign.rank, assign.world_size, assign.address, tried=tried)
        others = [rank for rank in entering if rank != assign.rank]
        joining_ranks = tuple(_joining(rank, store.get(f"state/{rank}"), assign.address) for rank in others)
        self._clients.give_back(assign.store, client)
        return Built(group, joining_ranks)


class LoneGroup:
    """The group of a world of one."""

    rank = 0
    size = 1

    def all_reduce(self, flat: Tensor) -> None:
        return None

    def all_reduce_max(self, values: Tensor) -> None:
        return None

    def broadcast(self, tensor: Tensor, source: int) -> None:
        return None

    def finish(self, work: object, halted: Callable[[], bool], on_wait: Callable[[float], None] | None = None) -> bool:
        return True

    def leave_behind(self, *buffers: Tensor) -> None:
        pass

    def cut(self) -> None:
        pass


def _connect(store: Store) -> TCPStore:
    return TCPStore(store.host, store.port, is_master=False, wait_for_workers=False, timeout=STORE_TIMEOUT)


def _joining(rank: int, written: bytes, source: str) -> JoiningRank:
    host, port, token = json.loads(written)
    return JoiningRank(rank, Destination((host, port), token, source))


def not_built(generation: int, error: Exception) -> str:
    reason = str(error).partition("\n")[0]
    return f"tradewind: failed to build the process group of generation {generation}: {reason}"


class Janitor:
    """A thread that drops retired groups after _KEEP_S seconds."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, object]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tradewind-janitor", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def __call__(self, dead: object) -> None:
        with self._changed:
            self._left.append((time.monotonic() + _KEEP_S, dead))
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread: it must not be inside torch's C++ code when the interpreter ends."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_LAST_WAIT_S)

    def _run(self) -> None:
        while (dead := self._next()) is not None:
            del dead

    def _next(self) -> object | None:
        with self._changed:
            while not self._closed:
                wait_s = self._left[0][0] - time.monotonic() if self._left else None
                if wait_s is not None and wait_s <= 0:
                    return self._left.popleft()[1]
                self._changed.wait(wait_s)
        return None


def group_maker(device: torch.device) -> MakeGroup:
    if device.type == "cuda":
        from tradewind.sdk.groups.nccl import build

        return partial(build, device)
    return gloo.build
