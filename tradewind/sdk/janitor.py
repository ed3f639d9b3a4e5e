"""Drops groups that are needed no longer: that takes time, and their last operations may still be under way."""

import queue
import threading
import time
from typing import Final

_KEEP_S: Final = 1.0


class Janitor:
    def __init__(self) -> None:
        self._left: queue.SimpleQueue[tuple[float, list[object]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="tradewind-janitor", daemon=True).start()

    def __call__(self, dead: object) -> None:
        self._left.put((time.monotonic() + _KEEP_S, [dead]))

    def _run(self) -> None:
        while True:
            due_s, dead = self._left.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            dead.clear()
