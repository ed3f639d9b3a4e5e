"""Outlives a region that was killed, for as long as it takes to end what the region's containers left behind.

The kernel ends the first process of every container with the region. What those had started in sessions of their own is
found by its mark. Run as a script, with the mark and perhaps a temporary folder as arguments: when its input ends, so
do they. Standard library only, and so without `runtime.proc`: started with every region, it has to start fast.
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
    """Processes that have this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
