"""Ends and reaps the descendants of this process (Linux).

This process is their subreaper: an orphan becomes its child and cannot escape. It reaps such children here, because no
event loop knows them.
"""

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path

from runtime import children


def kill_tree(root: int) -> list[int]:
    """Stops the process and its descendants, so that none starts another, then kills them: like a lost machine."""
    stopped = children.stop_all(lambda: [root, *children.alive_below(root)])
    children.send(stopped, signal.SIGKILL)
    return stopped


def kill_all_below(pid: int) -> list[str]:
    """Kills all descendants, also those that start meanwhile; returns their descriptions."""
    killed: dict[int, str] = {}

    def find() -> list[int]:
        left = children.alive_below(pid)
        killed.update({one: describe(one) for one in left if one not in killed})
        return left

    children.kill_until_none(find)
    return list(killed.values())


class Reaper:
    """Reaps adopted children at the second call that finds them, so that their waiters come first."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def reap(self, own: Collection[int]) -> None:
        """Reaps dead children but `own`, which have other waiters."""
        exited = {pid for pid in children.children_of(os.getpid()) if pid not in own and children.is_dead(pid)}
        for pid in exited & self._seen:
            children.reap(pid)
        self._seen = exited


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return f"{pid} {' '.join(word.decode(errors='replace') for word in words if word)}"
    return str(pid)
