"""The loader: reads a rank's share of a step, and reads the next share ahead in a thread if reading takes long.

The thread starts with the first share that takes long: scripts with samples in memory never have it.

The loader uses a share that was read ahead only if it is exactly the requested share: a change of the world changes
shares. Only one thread at a time uses the dataset.
"""

import atexit
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Protocol

from torch.utils.data import default_collate

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.data.order import Order
from tradewind.sdk.errors import ReadFailed

_LOOK_S: Final = 1.0
_WORTH_A_THREAD_S: Final = 0.002
"""Seconds that a read must take before shares are read ahead: below that, a second thread costs more than it saves."""
_LAST_WAIT_S: Final = 2.0

Collate = Callable[[list[Any]], Any]


class MapDataset(Protocol):
    """Any object with samples by index. With `__getitems__(indices)` a share is fetched in one call."""

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Reading:
    batch: Any
    """The result of the collate function; None for an empty share."""
    indices: tuple[int, ...]
    """The indices that were really read."""


class _Dropped(Exception):
    """The share is not needed any more."""


@dataclass(eq=False, slots=True)
class _Share:
    step: int
    ranges: Ranges
    dropped: bool = False
    reading: Reading | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    def is_of(self, step: int, ranges: Ranges) -> bool:
        return self.step == step and self.ranges == ranges


class Loader:
    """Reads shares from a dataset.

    With `prefetch=False` the training thread reads everything: for datasets that belong to the thread that opened them,
    and for those that draw from the global random generators.
    """

    def __init__(
        self,
        dataset: MapDataset,
        order: Order,
        collate: Collate | None = None,
        *,
        prefetch: bool = True,
        ahead_from_s: float | None = None,
    ) -> None:
        self._dataset = dataset
        self._get_many: Callable[[list[int]], Sequence[Any]] | None = getattr(dataset, "__getitems__", None)
        self._order = order
        self._collate: Collate = default_collate if collate is None else collate
        self._one_at_a_time = threading.Lock()
        self._ahead: _Share | None = None
        self._queue: SimpleQueue[_Share | None] = SimpleQueue()
        self._prefetch = prefetch
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._ahead_from_s = _WORTH_A_THREAD_S if ahead_from_s is None else ahead_from_s
        self._reads_s: deque[float] = deque(maxlen=2)

    @property
    def batch(self) -> int:
        """Samples of all ranks together in one step."""
        return self._order.batch

    def expect(self, step: int, ranges: Ranges) -> None:
        """Begins to read the share that is requested next, and drops the one expected before."""
        if self._ahead is not None and self._ahead.is_of(step, ranges):
            return
        self._drop()
        if self._prefetch and os.getpid() == self._pid and self._is_slow():
            self._start_thread()
            self._ahead = _Share(step, ranges)
            self._queue.put(self._ahead)

    def read(self, step: int, ranges: Ranges) -> Reading:
        """Reads the samples at those positions of the step's batch."""
        if os.getpid() != self._pid:
            self._forget_parent()
        ahead = self._ahead
        if ahead is not None and ahead.is_of(step, ranges):
            self._ahead = None
            reading = self._wait_for(ahead)
            if reading is not None:
                return reading
        self._drop()
        return self._read(_Share(step, ranges))

    def close(self) -> None:
        """Ends the thread; does not wait longer than _LAST_WAIT_S for a read."""
        atexit.unregister(self.close)
        self._drop()
        if self._thread is not None and os.getpid() == self._pid:
            self._queue.put(None)
            self._thread.join(_LAST_WAIT_S)
        self._thread = None
        self._prefetch = False

    def _is_slow(self) -> bool:
        """Compares the faster of two reads: the first read of a process opens files and fills caches."""
        return min(self._reads_s, default=self._ahead_from_s) >= self._ahead_from_s

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._read_ahead, name="tradewind-loader", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def _drop(self) -> None:
        if self._ahead is not None:
            self._ahead.dropped = True
            self._ahead = None

    def _wait_for(self, share: _Share) -> Reading | None:
        while not share.finished.wait(_LOOK_S):
            if self._thread is None or not self._thread.is_alive():
                return None
        return share.reading

    def _forget_parent(self) -> None:
        """Resets the loader in a forked child: it has no threads, and one of them may have held the lock."""
        self._pid = os.getpid()
        self._thread = None
        self._prefetch = False
        self._ahead = None
        self._one_at_a_time = threading.Lock()

    def _read_ahead(self) -> None:
        while (share := self._queue.get()) is not None:
            # After a failure here, the training thread reads again and fails where the script sees it.
            with contextlib.suppress(Exception):
                share.reading = self._read(share)
            share.finished.set()
            del share

    def _read(self, share: _Share) -> Reading:
        began_s = time.perf_counter()
        reading = self._read_all(share)
        self._reads_s.append(time.perf_counter() - began_s)
        return reading

    def _read_all(self, share: _Share) -> Reading:
        indices = self._order.indices(share.step, share.ranges)
        if not indices:
            return Reading(None, ())
        samples: list[Any] = []
        asked: list[int] = []
        for group in [indices] if self._get_many is not None else [[index] for index in indices]:
            with self._one_at_a_time:
                if share.dropped:
                    raise _Dropped
                asked += group
                samples += self._get(group, share.step)
        with self._one_at_a_time:
            return Reading(self._collate(samples), tuple(asked))

    def _get(self, indices: list[int], step: int) -> Sequence[Any]:
        try:
            samples = [self._dataset[indices[0]]] if self._get_many is None else self._get_many(list(indices))
        except Exception as error:
            raise ReadFailed(f"the dataset raised for {_named(indices)} of step {step}: {error!r}") from error
        if len(samples) != len(indices):
            raise ReadFailed(f"the dataset returned {len(samples)} samples for {_named(indices)} of step {step}")
        return samples


def _named(indices: list[int]) -> str:
    return f"sample {indices[0]}" if len(indices) == 1 else f"samples {', '.join(map(str, indices))}"
