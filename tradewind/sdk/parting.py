"""Told to end when its world is over, a trainer may be the last that has the state: it saves, then goes.

So a job that is paused or stopped goes on later where it was. Whoever is told to end while its world lives, and whoever
has a handler of its own, ends as ever.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Parting:
    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._asked: int | None = None
        self._save: Callable[[], None] | None = None
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)

    @property
    def is_asked(self) -> bool:
        """It was asked to end, and the world is over: nothing more is worth computing."""
        return self._asked is not None

    @contextlib.contextmanager
    def saves(self, save: Callable[[], None]) -> Iterator[None]:
        """Inside, whoever is told to end calls `save` first: the thread of the handler is the one that waits here."""
        self._save = save
        try:
            if self._asked is not None:
                self._end(self._asked)
            yield
        finally:
            self._save = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._save is None and self._is_over():
            self._asked = number  # in the middle of a step that counts no more: it is not far from waiting
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        signal.signal(number, signal.SIG_DFL)
        if self._save is not None:
            self._save()
        os.kill(os.getpid(), number)
