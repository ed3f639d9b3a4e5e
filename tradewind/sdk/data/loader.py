"""Reads a rank's share of a step, and reads the next one ahead on a thread of its own if reading takes long.

The thread starts with the first share that is worth it: a script whose samples are in memory never has it.

What was read ahead is handed out only if it is exactly the share that is asked for: a change of the world changes
shares, and what the old world wanted is dropped. One thread at a time is inside the dataset.
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
"""A share that is read faster is not read ahead: two threads that share one interpreter cost each other more."""
_LAST_WAIT_S: Final = 2.0

Collate = Callable[[list[Any]], Any]


class MapDataset(Protocol):
    """Any object with samples by index. With `__getitems__(indices)` a share is fetched in one call."""

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Reading:
    batch: Any
    """As the collate function made it; None for an empty share."""
    indices: tuple[int, ...]
    """What the dataset was really asked for."""


class _Dropped(Exception):
    """Nobody wants this share any more."""


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
    """`prefetch=False` keeps every read on the training thread: for datasets that are bound to the thread that opened
    them, and for those that draw from the global random generators.
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
        """Begins to read what is going to be asked for next, in place of whatever was expected before."""
        if self._ahead is not None and self._ahead.is_of(step, ranges):
            return
        self._drop()
        if self._prefetch and os.getpid() == self._pid and self._is_slow():
            self._start_thread()
            self._ahead = _Share(step, ranges)
            self._queue.put(self._ahead)

    def read(self, step: int, ranges: Ranges) -> Reading:
        """The samples at those positions of the step's batch."""
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
        """Ends the thread, unless the dataset keeps it for longer than is worth a wait."""
        atexit.unregister(self.close)
        self._drop()
        if self._thread is not None and os.getpid() == self._pid:
            self._queue.put(None)
            self._thread.join(_LAST_WAIT_S)
        self._thread = None
        self._prefetch = False

    def _is_slow(self) -> bool:
        """Judged by the faster of two reads: the first of a process opens files and fills caches."""
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
        """Threads do not come along into a forked child, and one of them may have held the lock."""
        self._pid = os.getpid()
        self._thread = None
        self._prefetch = False
        self._ahead = None
        self._one_at_a_time = threading.Lock()

    def _read_ahead(self) -> None:
        while (share := self._queue.get()) is not None:
            # What fails here is read again by the training thread, and fails where the script can see it.
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
            raise ReadFailed(f"the dataset gave {len(samples)} samples for {_named(indices)} of step {step}")
        return samples


def _named(indices: list[int]) -> str:
    return f"sample {indices[0]}" if len(indices) == 1 else f"samples {', '.join(map(str, indices))}"
