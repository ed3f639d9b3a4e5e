"""When checkpoints are taken, and what is known of the steps after the last one.

A checkpoint counts for the world outside, so it is written only when every rank has its step: one step later. Beside it
one number is kept, the newest step that was committed: if everything is lost at once, it tells what has to be repeated.
"""

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tradewind.sdk.checkpoint import Checkpoints

_NUMBER: Final = struct.Struct("!q")


class Saving:
    def __init__(self, folder: str | Path, every_steps: int) -> None:
        self._checkpoints = Checkpoints(folder, every_steps)
        self._held: tuple[int, dict[str, Any]] | None = None
        self._journal = os.open(Path(folder) / "newest-step", os.O_RDWR | os.O_CREAT, 0o644)

    def restore(self, restore: Callable[[dict[str, Any]], None]) -> tuple[int, int] | None:
        """The step of the newest checkpoint, and the newest step that was ever committed as far as is known here."""
        saved = self._checkpoints.newest()
        if saved is None:
            return None
        restore(self._checkpoints.load(saved))
        written = os.pread(self._journal, _NUMBER.size, 0)
        newest = _NUMBER.unpack(written)[0] if len(written) == _NUMBER.size else -1
        return saved.step, max(newest, saved.step - 1)

    def committed(self, step: int, payload: Callable[[], dict[str, Any]]) -> None:
        """The sum of `step` has come and is applied, so everybody has the step before it."""
        if self._held is not None:
            self._checkpoints.offer(*self._held)
            self._held = None
        self._note(step - 1)
        if self._checkpoints.is_due(step + 1):
            self._held = (step + 1, payload())

    def save_now(self, step: int, payload: Callable[[], dict[str, Any]]) -> None:
        """With `step` to be computed next, by somebody else and later. Waits until it is written."""
        self._note(step - 1)
        self._checkpoints.offer(step, payload())
        self._checkpoints.close()

    def close(self, steps: int, payload: Callable[[], dict[str, Any]]) -> None:
        """Everybody has the last step: who starts the run again finds it finished."""
        self.save_now(steps, payload)

    def _note(self, step: int) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the training
            os.pwrite(self._journal, _NUMBER.pack(step), 0)
