"""Reads of /proc about processes of this machine. A process that ends during a read counts as absent."""

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
    """Clock ticks since boot, which identify a process together with its pid."""

    @property
    def is_dead(self) -> bool:
        """True if the process has ended and only waits to be reaped."""
        return self.state in "ZX"


def pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def stat(pid: int) -> Stat | None:
    with contextlib.suppress(OSError):
        # The command's name is in parentheses and may contain any character, even parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return Stat(state=fields[0], parent=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19]))
    return None


def environ(pid: int) -> list[bytes]:
    """Returns `NAME=value` entries at the start of the process; none if it is dead or of another user."""
    return _parts(pid, "environ")


def carrying(mark: bytes) -> list[int]:
    """Returns the processes with this `NAME=value` in their environment, which children inherit."""
    return [pid for pid in pids() if mark in environ(pid)]


def arguments(pid: int) -> list[bytes]:
    return _parts(pid, "cmdline")


@functools.cache
def boot_id() -> str:
    """Returns the id of this boot, which is new after each start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _parts(pid: int, name: str) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    return []
