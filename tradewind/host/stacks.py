"""The Python stacks of a trainer, written on a signal into memory that it shares with the host.

faulthandler writes them from the signal handler itself, so a thread that sleeps or computes in C is shown too.
"""

import faulthandler
import os
import signal
from typing import Final

SIGNAL: Final = int(signal.SIGRTMIN) + 7
"""A real-time signal: scripts use SIGUSR1 and SIGUSR2 themselves."""
WRITE_S: Final = 0.5
"""Seconds that a trainer has to write its stacks."""
_LIMIT_BYTES: Final = 4 * 1024
_READ_BYTES: Final = 256 * 1024


def open_shared() -> int:
    """A file in memory, for the host and the trainer that it forks next."""
    return os.memfd_create("tradewind-stacks")


def write_on_signal(fd: int) -> None:
    """In the trainer."""
    faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)


def read(fd: int) -> str:
    """The main thread's stack first, then as many of the others as there is room for."""
    written = os.pread(fd, _READ_BYTES, 0).decode(errors="replace").strip()
    threads = [each.strip() for each in written.split("\n\n") if each.strip()]
    return "\n\n".join(reversed(threads)).encode()[:_LIMIT_BYTES].decode(errors="ignore")
