"""The guard of a local stack: a process that cleans up if the command is killed.

The guard holds the reading end of a pipe. The other end closes when the command ends in any way. Then the guard kills
all processes with the stack's mark in their environment, and their descendants, and removes the stack's folder.
Worker-agents carry the mark; the processes of their jobs are their descendants or in their cgroups.
"""

import shutil
import sys
from pathlib import Path

from agents.worker.leftovers import end_cgroups
from runtime import children, proc

MARK = "TRADEWIND_STACK"
PAUSES_S = (0.05,) * 100
"""Seconds after each round of killing. There are more rounds than elsewhere, because the guard is the last cleanup."""


def workers_folder(folder: str | Path) -> Path:
    return Path(folder) / "workers"


def marked(folder: str) -> list[int]:
    """Processes that the stack of this folder started, also if their parents have ended."""
    return proc.carrying(f"{MARK}={folder}".encode())


def execute(folder: str) -> None:
    # All processes are stopped before the first is killed, so that no child becomes an orphan and escapes.
    children.kill_until_none(lambda: children.stop_all(lambda: _here(folder)), PAUSES_S)
    end_cgroups(workers_folder(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _here(folder: str) -> list[int]:
    roots = marked(folder)
    return list(dict.fromkeys([*roots, *children.below(roots)]))


if __name__ == "__main__":
    sys.stdin.buffer.read()
    execute(sys.argv[1])
