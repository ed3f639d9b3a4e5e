"""The folder of a local stack: its state, and what its parts write. It goes with the stack if that did not fail."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.errors import UserError


class StackFailed(UserError):
    """A part of the stack did not come up or could not live: what it wrote says why."""


@contextmanager
def own_folder(say: Callable[[str], None], *, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tradewind-"))
    kept = keep
    try:
        yield folder
    except* StackFailed:
        kept = True
        raise
    finally:
        if kept:
            say(f"logs and state are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
