"""A part of the local stack that dies is started again."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from runtime.errors import UserError
from runtime.process import EXIT_USER_ERROR
from tradewind.local.folder import StackFailed
from tradewind.local.parts import Part

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
EARLY_S = 10.0
EARLY_AT_MOST = 3
"""So often in a row a part may end soon after its start."""
TAIL_LINES = 15
FINAL_CODES = (EXIT_USER_ERROR,)
"""A mistake that a person must correct: starting again would not help."""


async def keep(part: Part, say: Callable[[str], None]) -> None:
    """Until cancelled, the part that was started is kept alive: with backoff, and not if it cannot live."""
    loop = asyncio.get_running_loop()
    early, backoff_s, started_s = 0, FIRST_BACKOFF_S, loop.time()
    while True:
        code = await part.wait_exit()
        if loop.time() - started_s > EARLY_S:
            early, backoff_s = 0, FIRST_BACKOFF_S
        early += 1
        sentence, tail = f"The {part.name} ended with {code} and cannot go on:", tail_of(part.log_file)
        if code in FINAL_CODES:
            raise UserError(sentence, "correct what the lines above say", tail)
        if early > EARLY_AT_MOST:
            raise StackFailed(sentence, f"look at the lines above, or at all of them in {part.log_file}", tail)
        say(f"the {part.name} ended with {code} and is started again")
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
        started_s = loop.time()
        await part.start()


def tail_of(file: Path) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError):
        return tuple(file.read_text(errors="replace").splitlines()[-TAIL_LINES:])
    return ()
