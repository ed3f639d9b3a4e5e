"""The Python stacks of a trainer, which it writes on a signal into memory shared with the host.

faulthandler writes them inside the signal handler, so they include threads that sleep or run C code.
"""

import faulthandler
import os
import signal
from typing import Final

SIGNAL: Final = int(signal.SIGRTMIN) + 7
"""A real-time signal: scripts use SIGUSR1 and SIGUSR2 themselves."""
WRITE_S: Final = 0.5
"""Seconds that a trainer may take to write its stacks."""
_LIMIT_BYTES: Final = 4 * 1024
_READ_BYTES: Final = 256 * 1024


def open_shared() -> int:
    """Opens a file in memory, for the host and the next trainer."""
    return os.memfd_create("tradewind-stacks")


def write_on_signal(fd: int) -> None:
    """Makes this process write its stacks on SIGNAL. The trainer calls it."""
    faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)


def read(fd: int) -> str:
    """Returns the main thread's stack, then as many of the others as fit."""
    written = os.pread(fd, _READ_BYTES, 0).decode(errors="replace").strip()
    threads = [each.strip() for each in written.split("\n\n") if each.strip()]
    return "\n\n".join(reversed(threads)).encode()[:_LIMIT_BYTES].decode(errors="ignore")
