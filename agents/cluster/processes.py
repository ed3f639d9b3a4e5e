"""Finding the processes of a place again: by what they carry, never by a number alone, for numbers are used again."""

import contextlib
import functools
import itertools
import os
import signal
from pathlib import Path
from typing import NamedTuple

MARK = "TRADEWIND_PLACE"
"""In the environment of everything that runs in a place, with its uid."""

_UNREADABLE = (FileNotFoundError, ProcessLookupError, PermissionError)


class _Stat(NamedTuple):
    state: str
    session: int
    start_ticks: str


def birth_of(pid: int) -> str | None:
    """Tells this process from a later one with its number; None if there is no such process, or only its remains."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else f"{_boot_id()}/{stat.start_ticks}"


def carries(pid: int, uid: str) -> bool:
    """Whether it is the worker-agent of this place, not something that the agent started."""
    return _has_mark(pid, uid) and _is_told(pid, uid)


def find_agent(uid: str) -> int | None:
    return next((pid for pid in _pids() if birth_of(pid) is not None and carries(pid, uid)), None)


def of_place(uid: str, leader: int) -> list[int]:
    """All that still runs there, whatever sessions it made for itself."""
    return [pid for pid in _pids() if _is_in_session(pid, leader) or _has_mark(pid, uid)]


def send(pid: int, birth: str, number: signal.Signals) -> bool:
    """Only to that very process; False if it is not there any more."""
    if birth_of(pid) != birth:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _is_in_session(pid: int, leader: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat.session == leader and stat.state not in "ZX"


def _has_mark(pid: int, uid: str) -> bool:
    return f"{MARK}={uid}".encode() in _parts(pid, "environ")


def _is_told(pid: int, uid: str) -> bool:
    arguments = _parts(pid, "cmdline")
    return (b"--uid", uid.encode()) in itertools.pairwise(arguments)


def _parts(pid: int, name: str) -> list[bytes]:
    with contextlib.suppress(*_UNREADABLE):
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    return []


def _stat(pid: int) -> _Stat | None:
    with contextlib.suppress(*_UNREADABLE):
        # The command's name stands in parentheses and may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return _Stat(state=fields[0], session=int(fields[3]), start_ticks=fields[19])
    return None


@functools.cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
