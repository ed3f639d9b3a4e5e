"""The processes below this one: which of them live, and how they end (Linux).

This process is their subreaper, so an orphan among them becomes its child: nobody escapes by losing a parent, and
adopted children that have exited are waited for here, because no event loop knows of them.
"""

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path

from runtime import children


def kill_tree(root: int) -> list[int]:
    """A lost machine: the process and all below it are stopped, so that none starts another, and then killed."""
    stopped = children.stop_all(lambda: [root, *children.alive_below(root)])
    children.send(stopped, signal.SIGKILL)
    return stopped


def kill_all_below(pid: int) -> list[str]:
    """Whoever is left is killed, and whoever they have started meanwhile; what had to be killed."""
    killed: dict[int, str] = {}

    def find() -> list[int]:
        left = children.alive_below(pid)
        killed.update({one: describe(one) for one in left if one not in killed})
        return left

    children.kill_until_none(find)
    return list(killed.values())


class Reaper:
    """Takes the exit codes of adopted children: on the second look, so that whoever waits for one has had it first."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def reap(self, own: Collection[int]) -> None:
        """`own` are those that somebody else waits for."""
        exited = {pid for pid in children.children_of(os.getpid()) if pid not in own and children.is_dead(pid)}
        for pid in exited & self._seen:
            children.reap(pid)
        self._seen = exited


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return f"{pid} {' '.join(word.decode(errors='replace') for word in words if word)}"
    return str(pid)
