"""Commands of other programs. Each has a time limit; the log has the command and its output."""

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import UserError

READ_S = 120.0
NOT_FOUND = 127
TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


class WouldChange(Exception):
    """The dry run of a check has reached the first command that changes something."""


class Commands(Protocol):
    async def __call__(self, *argv: str, within_s: float = READ_S) -> Ran:
        """Run the program. A missing or slow program results in an exit code, not an exception."""


class Programs:
    """Programs of this machine."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log

    async def __call__(self, *argv: str, within_s: float = READ_S) -> Ran:
        self._log(f"$ {shlex.join(argv)}")
        ran = await _ran(argv, within_s)
        self._log(f"{ran.out}{ran.err}(exit code {ran.code})")
        return ran


async def _ran(argv: tuple[str, ...], within_s: float) -> Ran:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        return Ran(NOT_FOUND, "", f"cannot start {argv[0]}: {error.strerror}")
    try:
        async with asyncio.timeout(within_s):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Ran(TIMED_OUT, "", f"{shlex.join(argv[:4])} … did not end within {within_s:g} s")
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return Ran(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


def output_of(ran: Ran, action: str) -> str:
    """The output of a program. Raises `UserError` if the program failed."""
    if ran.code == 0:
        return ran.out
    lines = (ran.err or ran.out).strip().splitlines() or [f"exit code {ran.code}"]
    # gcloud puts the error first and advice after it.
    error = next((line for line in lines if line.startswith("ERROR: ")), lines[-1])
    raise UserError(f"cannot {action}: {error.removeprefix('ERROR: ')}")
