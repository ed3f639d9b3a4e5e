"""The end of a run: after its last step, or after the step in which the script on any rank requests it.

The request is a flag in the control words of a step, so all ranks end after the same step. If the all-reduce breaks,
the flag stays set and goes with the next all-reduce.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from tradewind.sdk.diagnostics import say

_LEFT: Final = (
    "the script left the loop in step {step}, before the last step: other ranks may still wait for this one, and no "
    "checkpoint is written. To end a run early, call run.stop() instead of break: all ranks end after the same step"
)


def ends_early(done: int) -> str:
    return f"the run ends after step {done - 1}, as its script requested; steps done: {done}"


class Ending:
    def __init__(self, steps: int) -> None:
        self.planned = steps
        self.asked = False
        """True once this rank's script requests the end of the run."""

    def ask(self) -> None:
        self.asked = True


def remark_on_leaving(step: int) -> None:
    """Prints at the end of the process how to leave a loop early, unless an error ends the process."""
    atexit.register(_remark, step)


def _remark(step: int) -> None:
    if getattr(sys, "last_value", None) is None:
        say(_LEFT.format(step=step))


class Parting:
    """Saves the state of a trainer that gets SIGTERM when its world is over: it may be the last one with the state.

    So a paused or stopped job can resume where it was. SIGTERM acts as usual while the world is alive, or if the script
    has its own handler.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._asked: int | None = None
        self._save: Callable[[], None] | None = None
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)

    @property
    def is_asked(self) -> bool:
        """True after SIGTERM in a world that is over: there is nothing left to compute."""
        return self._asked is not None

    @contextlib.contextmanager
    def saves(self, save: Callable[[], None]) -> Iterator[None]:
        """A context in which SIGTERM calls `save` first. Python runs the handler in the thread that waits here."""
        self._save = save
        try:
            if self._asked is not None:
                self._end(self._asked)
            yield
        finally:
            self._save = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._save is None and self._is_over():
            self._asked = number  # the training thread saves when it next waits for a world, which is soon
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        signal.signal(number, signal.SIG_DFL)
        if self._save is not None:
            self._save()
        os.kill(os.getpid(), number)
