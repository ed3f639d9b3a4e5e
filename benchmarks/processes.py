"""Processes that a benchmark starts: identified by their commands, and none left behind."""

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
    """The command line of a process; empty if it has ended."""
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
    """Ends all processes that the block starts, and their descendants, when the block ends.

    This process reaps orphans instead of init, so it finds them in any session.
    """
    before = set(descendants(os.getpid()))
    with _as_subreaper(), _sigterm_as_exit():
        try:
            yield
        finally:
            _end_all_but(before)


@contextmanager
def _as_subreaper() -> Iterator[None]:
    _set_subreaper(True)
    try:
        yield
    finally:
        _set_subreaper(False)


def _set_subreaper(enabled: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0) != 0:
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
