"""Cleans up after a killed region: ends the processes that its containers left behind.

The kernel ends the first process of every container with the region. The janitor finds the processes that those started
in other sessions by their mark. It runs as a script with the mark and optionally a temporary folder as arguments, and
cleans up when its input ends. It imports only the standard library, not even `runtime.proc`, because it starts with
every region and must start fast.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

RUN_MARK = "SIM_REGION_RUN"
_ROUNDS = 100
_PAUSE_S = 0.05


def main(mark: str, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_all(f"{RUN_MARK}={mark}".encode())
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def kill_all(variable: bytes) -> None:
    for _ in range(_ROUNDS):
        left = carrying(variable)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def carrying(variable: bytes) -> list[int]:
    """Processes with this variable in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
