"""A part of the local stack that dies is started again."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from runtime.errors import UserError
from runtime.process import EXIT_USER_ERROR
from tradewind.cli.parts import Part

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
MAX_RESTARTS = 10
TAIL_LINES = 15
FINAL_CODES = (EXIT_USER_ERROR, 3)
"""A mistake that a person must correct, and a master whose place another one took: starting again would not help."""


async def keep(part: Part, say: Callable[[str], None]) -> None:
    """Until cancelled, the part that was started is kept alive: with backoff, and not for ever."""
    backoff_s = FIRST_BACKOFF_S
    for _ in range(MAX_RESTARTS):
        code = await part.wait_exit()
        if code in FINAL_CODES:
            raise UserError(f"The {part.name} cannot go on:", problems=tail_of(part.log_file))
        say(f"the {part.name} ended with {code} and is started again")
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
        await part.start()
    raise UserError(f"The {part.name} has ended {MAX_RESTARTS} times:", problems=tail_of(part.log_file))


def tail_of(file: Path) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError):
        return tuple(file.read_text(errors="replace").splitlines()[-TAIL_LINES:])
    return ()
