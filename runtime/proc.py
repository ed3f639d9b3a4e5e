"""What /proc tells of this machine's processes. One that ends while it is read is not there."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Stat(NamedTuple):
    state: str
    parent: int
    session: int
    start_ticks: int
    """Since the start of the machine: with the pid, names one process for ever."""

    @property
    def is_dead(self) -> bool:
        """It only waits to be buried."""
        return self.state in "ZX"


def pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def stat(pid: int) -> Stat | None:
    with contextlib.suppress(OSError):
        # The command's name stands in parentheses and may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return Stat(state=fields[0], parent=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19]))
    return None


def environ(pid: int) -> list[bytes]:
    """`NAME=value` as it was when it started; nothing for one that is dead or another user's."""
    return _parts(pid, "environ")


def carrying(mark: bytes) -> list[int]:
    """Processes that have this `NAME=value` in their environment: what a child inherits, whatever becomes of us."""
    return [pid for pid in pids() if mark in environ(pid)]


def arguments(pid: int) -> list[bytes]:
    return _parts(pid, "cmdline")


@functools.cache
def boot_id() -> str:
    """Another one after each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _parts(pid: int, name: str) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    return []
