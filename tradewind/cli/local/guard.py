"""The local stack's last will: if the command is killed, nobody is left to end what it started, but for this process.

It holds the reading end of a pipe. The other end closes when the command dies, however it dies; then everything that
carries the stack's mark in its environment is killed, and the stack's folder is removed.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

from runtime import proc

MARK = "TRADEWIND_STACK"
ROUNDS = 100
ROUND_S = 0.05


def marked(folder: str) -> list[int]:
    """Whoever was started below the stack of this folder, whatever became of its parents."""
    return proc.carrying(f"{MARK}={folder}".encode())


def execute(folder: str) -> None:
    for _ in range(ROUNDS):
        left = marked(folder)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(ROUND_S)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    execute(sys.argv[1])
