"""When checkpoints are taken, and what is known of the steps after the last one.

A checkpoint counts for the world outside, so it is written only when every rank has its step: one step later. Beside it
a journal is kept of how far each life of the run came: if everything is lost at once, it tells what has to be repeated.
"""

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tradewind.sdk.certificate import Life
from tradewind.sdk.checkpoint import Checkpoints
from tradewind.sdk.layout import StateDoesNotFit

_WRITTEN_WITHIN_S: Final = 3600.0
"""The last checkpoint of a process is worth any wait: who wants it to end sooner kills it."""
_LIFE: Final = struct.Struct("!qq")


class Saving:
    def __init__(self, folder: str | Path, every_steps: int) -> None:
        self._checkpoints = Checkpoints(folder, every_steps)
        self._held: tuple[int, dict[str, Any]] | None = None
        self._journal = Journal(Path(folder) / "lives")

    def tell(self, saved: Callable[[int, Path], None]) -> None:
        """Calls `saved` with the step and folder of each checkpoint that was written."""
        self._checkpoints.on_saved = lambda each: saved(each.step, each.path.parent)

    @property
    def folder(self) -> Path:
        return self._checkpoints.folder

    def restore(self, restore: Callable[[dict[str, Any]], None]) -> tuple[int, list[Life]] | None:
        """The step of the newest checkpoint, or 0 without one, and the lives before; None if there was none."""
        saved = self._checkpoints.newest()
        if saved is not None:
            try:
                restore(self._checkpoints.load(saved))
            except StateDoesNotFit as error:
                raise StateDoesNotFit(
                    f"the checkpoint {saved.path} is of another state: {error}; "
                    "give the run the same state, or another folder"
                ) from None
        lives = self._journal.begin_another()
        if saved is None and not any(life.end for life in lives):
            return None
        return (saved.step if saved is not None else 0), lives

    def committed(self, step: int, payload: Callable[[], dict[str, Any]]) -> None:
        """The sum of `step` has come and is applied, so everybody has the step before it."""
        if self._held is not None and self._held[0] == step:  # older: from when this rank was the first, some time ago
            self._checkpoints.offer(*self._held)
        self._held = None
        self._journal.reached(step)
        if self._checkpoints.is_due(step + 1):
            self._held = (step + 1, payload())

    def save_now(self, step: int, payload: Callable[[], dict[str, Any]]) -> None:
        """With `step` to be computed next, by somebody else and later. Waits until it is written."""
        self._journal.reached(step)
        self._checkpoints.offer(step, payload())
        self._checkpoints.close(_WRITTEN_WITHIN_S)

    def close(self, step: int, payload: Callable[[], dict[str, Any]]) -> None:
        """Everybody has the last step: who starts the run again finds it finished."""
        self.save_now(step, payload)


class Journal:
    """The lives of a run, one after the other. One rank at a time writes; any may be the next to do so."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._number: int | None = None
        """Of the present life."""
        self._first: int | None = None

    def begin_another(self) -> list[Life]:
        """Returns those before. Every rank of the new life calls it, before any of them has written."""
        lives = self._read()
        self._number, self._first = len(lives), None
        return lives

    def reached(self, end: int) -> None:
        """Steps below are committed."""
        with contextlib.suppress(OSError):  # a full disk must not stop the training
            if self._number is None or self._first is None:
                self._number, self._first = self._place(end)
            os.pwrite(self._file, _LIFE.pack(self._first, end), self._number * _LIFE.size)

    def _place(self, end: int) -> tuple[int, int]:
        """Who writes for the first time goes on where another rank of the same life has stopped."""
        lives = self._read()
        number = max(0, len(lives) - 1) if self._number is None else self._number
        return number, lives[number].first if number < len(lives) else end

    def _read(self) -> list[Life]:
        written = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = len(written) - len(written) % _LIFE.size
        return [Life(*pair) for pair in _LIFE.iter_unpack(written[:whole])]
