"""The processes below this one: which of them live, and how they end (Linux).

This process is their subreaper, so an orphan among them becomes its child: nobody escapes by losing a parent, and
adopted children that have exited are waited for here, because no event loop knows of them.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from runtime.children import alive_below, descendants, parent_of

KILL_ROUNDS = 50
KILL_ROUND_S = 0.02


def is_alive(pid: int) -> bool:
    state = _state(pid)
    return state is not None and state not in "ZX"


def children_of(pid: int) -> list[int]:
    return [one for one in alive_below(pid) if parent_of(one) == pid]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_tree(root: int) -> list[int]:
    """A lost machine: the process and all below it are stopped, so that none starts another, and then killed."""
    caught: list[int] = []
    while new := [pid for pid in (root, *alive_below(root)) if pid not in caught and is_alive(pid)]:
        send(new, signal.SIGSTOP)
        caught += new
    send(caught, signal.SIGKILL)
    return caught


def kill_all_below(pid: int) -> list[str]:
    """Whoever is left is killed, and whoever they have started meanwhile; what had to be killed."""
    killed: dict[int, str] = {}
    for _ in range(KILL_ROUNDS):
        left = alive_below(pid)
        if not left:
            break
        killed |= {one: describe(one) for one in left if one not in killed}
        send(left, signal.SIGKILL)
        time.sleep(KILL_ROUND_S)
    return list(killed.values())


class Reaper:
    """Takes the exit codes of adopted children: on the second look, so that whoever waits for one has had it first."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def reap(self, own: Collection[int]) -> None:
        """`own` are those that somebody else waits for."""
        me = os.getpid()
        exited = {pid for pid in descendants(me) if pid not in own and parent_of(pid) == me and _state(pid) == "Z"}
        for pid in exited & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = exited


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return f"{pid} {' '.join(word.decode(errors='replace') for word in words if word)}"
    return str(pid)


def _state(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None
