"""What a command leaves behind: every process below it carries a variable that the test made up."""

import contextlib
import os
import secrets
from itertools import pairwise
from pathlib import Path

from tests.conftest import eventually

VARIABLE = "END_TO_END_TEST"


def a_mark() -> dict[str, str]:
    return {VARIABLE: secrets.token_hex(8)}


def carriers(mark: dict[str, str]) -> list[int]:
    wanted = f"{VARIABLE}={mark[VARIABLE]}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def is_role(pid: int, name: str) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return (b"tradewind", name.encode()) in pairwise(words)


async def nothing_is_left(mark: dict[str, str]) -> None:
    """Whoever was just killed may need a moment to be gone."""
    await eventually(lambda: not carriers(mark), what=f"processes {carriers(mark)} are left")
