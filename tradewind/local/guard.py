"""The local stack's last will: if the command is killed, nobody is left to end what it started, but for this process.

It holds the reading end of a pipe. The other end closes when the command dies, however it dies; then everything that
carries the stack's mark in its environment is killed, with all below it, and the stack's folder is removed.
Worker-agents carry the mark, and whatever their jobs started is below them or in their cgroups.
"""

import shutil
import sys
from pathlib import Path

from agents.worker.leftovers import end_cgroups
from runtime import children, proc

MARK = "TRADEWIND_STACK"
PAUSES_S = (0.05,) * 100
"""Seconds after each round of killing. More than elsewhere: nobody comes after the guard."""


def workers_folder(folder: str | Path) -> Path:
    return Path(folder) / "workers"


def marked(folder: str) -> list[int]:
    """Whoever was started below the stack of this folder, whatever became of its parents."""
    return proc.carrying(f"{MARK}={folder}".encode())


def execute(folder: str) -> None:
    # Stopped first, from the agents down: killed one after the other, they would leave their children to nobody.
    children.kill_until_none(lambda: children.stop_all(lambda: _here(folder)), PAUSES_S)
    end_cgroups(workers_folder(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _here(folder: str) -> list[int]:
    roots = marked(folder)
    return list(dict.fromkeys([*roots, *children.below(roots)]))


if __name__ == "__main__":
    sys.stdin.buffer.read()
    execute(sys.argv[1])
