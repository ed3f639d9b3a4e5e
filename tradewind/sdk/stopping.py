"""When a run ends: after its last step, or after the step in which the script asks for it on any rank.

The request is a flag in the control words of a step, so all ranks end after the same one. It stays raised until a step
carries it: if the all-reduce breaks, the step is computed again and carries it then.
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
    "the loop was left in step {step}, before its last one: other ranks may still wait for this one, and no checkpoint "
    "is written. To end a run early call run.stop() instead of break: all ranks end after the same step"
)


class Ending:
    def __init__(self, steps: int) -> None:
        self.planned = steps
        self.asked = False
        """This rank's script wants the run to end."""

    def ask(self) -> None:
        self.asked = True


def remark_on_leaving(step: int) -> None:
    """Says at the end of the process how to leave a loop, unless an error has ended it: then that is what counts."""
    atexit.register(_remark, step)


def _remark(step: int) -> None:
    if getattr(sys, "last_value", None) is None:
        say(_LEFT.format(step=step))


class Parting:
    """Saves the state of a trainer that is told to end when its world is over: it may be the last that has the state.

    So a job that is paused or stopped resumes later where it was. A trainer that is told to end while its world lives,
    or whose script has a handler of its own, ends as without this.
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
