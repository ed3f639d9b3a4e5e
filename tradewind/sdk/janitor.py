"""Drops groups that are needed no longer: that takes time, and their last operations may still be under way."""

import atexit
import threading
import time
from collections import deque
from typing import Final

_KEEP_S: Final = 1.0
_LAST_WAIT_S: Final = 2.0


class Janitor:
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
        """What is left goes with the process; but a thread inside torch's own code must not outlive the interpreter."""
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
