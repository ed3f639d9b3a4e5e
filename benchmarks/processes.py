"""Processes that a benchmark starts: told apart by their commands, and none left behind."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from runtime.children import descendants

_PR_SET_CHILD_SUBREAPER: Final = 36
_LAST_WORD_S: Final = 10.0


def command_line(pid: int) -> str:
    """Empty for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def leaving_none() -> Iterator[None]:
    """Whatever is started inside, and whatever that starts, has ended afterwards, however the inside ends.

    Orphans come to this process instead of to init, so that they can be found whatever session they made.
    """
    before = set(descendants(os.getpid()))
    with _adopting_orphans(), _sigterm_as_exit():
        try:
            yield
        finally:
            _end_all_but(before)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    _set_adopting(True)
    try:
        yield
    finally:
        _set_adopting(False)


def _set_adopting(adopting: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(adopting), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    def leave(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    former = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _end_all_but(spared: set[int]) -> None:
    deadline = time.monotonic() + _LAST_WORD_S
    while left := [pid for pid in descendants(os.getpid()) if pid not in spared]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} survived SIGKILL for {_LAST_WORD_S} s")
        kill(left)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
