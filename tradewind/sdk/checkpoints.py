"""Checkpoints in a local folder, for the case that all ranks lose their memory at once.

A checkpoint exists whole or not at all: a temporary file is written, synced to disk, and renamed. A checksum finds
damaged checkpoints, which are skipped. No failure to write a checkpoint stops the training.
"""

import atexit
import contextlib
import os
import pickle
import re
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import torch

from tradewind.sdk.certificate import Life
from tradewind.sdk.diagnostics import say
from tradewind.sdk.errors import StateDoesNotFit

_NAME: Final = re.compile(r"step-(\d+)\.pt")
_LAST_WAIT_S: Final = 10.0
_NO_COMMENT: Final = b"\0\0"
_SEAL_BYTES: Final = 8
_CHUNK_BYTES: Final = 1024 * 1024
_LIFE: Final = struct.Struct("!qq")
_WRITTEN_WITHIN_S: Final = 3600.0
"""Seconds that a process waits for its last checkpoint; SIGKILL ends the wait."""
_UNWRITABLE: Final = (OSError, RuntimeError, pickle.PicklingError, TypeError, AttributeError)
"""Errors of a failed write: torch raises RuntimeError for a full disk, and the last three for unpicklable objects."""


@dataclass(frozen=True, slots=True)
class Saved:
    step: int
    """The next step to compute after loading it."""
    path: Path


class Checkpoints:
    """The checkpoints of a folder. It needs space for `keep` + 1: an old one is removed after a new one is written."""

    def __init__(self, folder: str | os.PathLike[str], every_steps: int, keep: int = 2) -> None:
        if every_steps < 1 or keep < 1:
            raise ValueError(
                f"the number of steps between checkpoints ({every_steps}) and the number of checkpoints to keep "
                f"({keep}) must be at least 1"
            )
        self.folder = Path(folder)
        # A folder that cannot be created is an error now, while the user is watching.
        self.folder.mkdir(parents=True, exist_ok=True)
        self._every_steps = every_steps
        self._keep = keep
        self._reported = ""
        self.on_saved: Callable[[Saved], None] = lambda saved: None
        """The writing thread calls it after each checkpoint."""
        self._changed = threading.Condition()
        self._offered: tuple[int, dict[str, Any]] | None = None
        self._writing = False
        self._closed = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        """The writing thread, started with the first checkpoint."""

    def is_due(self, step: int) -> bool:
        """True if a checkpoint is due before step `step` is computed."""
        return step > 0 and step % self._every_steps == 0

    def newest(self) -> Saved | None:
        """The newest undamaged checkpoint."""
        for saved in self._saved():
            if _is_whole(saved.path):
                return saved
            say(f"the checkpoint {saved.path} is damaged and is skipped")
        return None

    def load(self, saved: Saved) -> dict[str, Any]:
        """Loads a checkpoint to the CPU. It may run code: a folder of checkpoints is trusted like the script itself."""
        return _load(saved.path)

    def offer(self, step: int, payload: dict[str, Any]) -> None:
        """Writes a checkpoint in the background and never waits. The caller must not change the payload any more.

        During a write, only the newest offered checkpoint waits; older ones are dropped.
        """
        with self._changed:
            self._offered = (step, payload)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_offered, name="tradewind-checkpoints", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def flush(self, timeout_s: float) -> bool:
        """Waits until all offered checkpoints are written or have failed. False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._offered is None and not self._writing, timeout_s)

    def close(self, wait_s: float = _LAST_WAIT_S) -> None:
        atexit.unregister(self.close)
        if os.getpid() != self._pid or self._thread is None or not self._thread.is_alive():
            return
        self.flush(wait_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_LAST_WAIT_S)

    def save(self, step: int, payload: dict[str, Any]) -> Saved | None:
        """Writes a checkpoint. Prints a warning and returns None if that fails."""
        saved = Saved(step, self.folder / f"step-{step:012d}.pt")
        aside = saved.path.with_suffix(f".{socket.gethostname()}-{os.getpid()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear_half_written()
            with aside.open("w+b") as file:
                torch.save(payload, file)
                _seal(file)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(saved.path)
        except _UNWRITABLE as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            self._warn(step, error)
            return None
        self._reported = ""
        self._make_durable()
        self._prune(step)
        return saved

    def _write_offered(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._offered is not None or self._closed)
                if self._offered is None:
                    return
                step, payload = self._offered
                self._offered = None
                self._writing = True
            saved = self.save(step, payload)
            del payload
            if saved is not None:
                self.on_saved(saved)

    def _saved(self) -> list[Saved]:
        """The checkpoints in the folder, newest first."""
        try:
            found = [(match, path) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        except OSError:
            return []
        return sorted((Saved(int(match[1]), path) for match, path in found), key=lambda saved: -saved.step)

    def _prune(self, newest: int) -> None:
        """Removes old checkpoints. Those above `newest` do not count: they were damaged when this run began."""
        older = [saved for saved in self._saved() if saved.step <= newest]
        for saved in older[self._keep :]:
            with contextlib.suppress(OSError):
                saved.path.unlink(missing_ok=True)

    def _clear_half_written(self) -> None:
        """Removes temporary files of killed processes. A process that still writes one prints a warning."""
        for left in self.folder.glob("step-*.tmp"):
            left.unlink(missing_ok=True)

    def _make_durable(self) -> None:
        # Not every file system can sync a folder; the checkpoint itself is already on the disk.
        with contextlib.suppress(OSError):
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _warn(self, step: int, error: BaseException) -> None:
        """Prints a warning, once for each reason until a write succeeds."""
        reason = _reason(error)
        if reason == self._reported:
            return
        self._reported = reason
        saved = self._saved()
        say(not_written(step, self.folder, reason, saved[0].step if saved else None))


def does_not_fit(path: Path, difference: str) -> str:
    return (
        f"the checkpoint {path} does not fit this script: {difference}; give the run the same state, or another folder"
    )


def not_written(step: int, folder: Path, reason: str, newest: int | None) -> str:
    """The warning about a failed write. `newest` is the step of the newest checkpoint in the folder."""
    fallback = "the beginning" if newest is None else f"step {newest}"
    return (
        f"failed to write the checkpoint of step {step} to {folder} ({reason}); training continues, "
        f"and resumes from {fallback} if all workers are lost"
    )


def _seal(file: IO[bytes]) -> None:
    """Adds a checksum of the whole file: the archive's own checksums do not cover its directory.

    The checksum is the archive's comment. An archive without a comment ends with the comment's length, 0.
    """
    file.seek(-len(_NO_COMMENT), os.SEEK_END)
    if file.read() != _NO_COMMENT:
        raise RuntimeError("torch wrote an archive that already has a comment")
    file.seek(-len(_NO_COMMENT), os.SEEK_END)
    file.write(struct.pack("<H", _SEAL_BYTES))
    file.write(b"%0*x" % (_SEAL_BYTES, _checksum(file, file.tell())))


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            sealed_bytes = file.seek(-_SEAL_BYTES, os.SEEK_END)
            return file.read() == b"%0*x" % (_SEAL_BYTES, _checksum(file, sealed_bytes))
    except OSError:
        return False


def _checksum(file: IO[bytes], size: int) -> int:
    """The checksum of the first `size` bytes; the file's position is then behind them."""
    file.seek(0)
    found = 0
    while size > 0 and (chunk := file.read(min(size, _CHUNK_BYTES))):
        found = zlib.crc32(chunk, found)
        size -= len(chunk)
    return found


def _load(path: Path) -> dict[str, Any]:
    payload: dict[str, Any]
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        payload = torch.load(path, map_location="cpu", weights_only=False)
    return payload


def _reason(error: BaseException) -> str:
    """The operating system's reason if there is one: torch's own message hides it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    reported = cause if isinstance(cause, OSError) else error
    return (isinstance(reported, OSError) and reported.strerror) or str(reported).splitlines()[0]


class Saving:
    """Decides when to write checkpoints, and writes the journal.

    A checkpoint is written one step later, when every rank has its step. The journal records how far each life of the
    run came: after a resume, it shows which steps are recomputed.
    """

    def __init__(self, folder: str | Path, every_steps: int, payload: Callable[[], dict[str, Any]]) -> None:
        """`payload` copies the current state."""
        self._checkpoints = Checkpoints(folder, every_steps)
        self._payload = payload
        self._held: tuple[int, dict[str, Any]] | None = None
        self._journal = Journal(Path(folder) / "lives")

    def tell(self, saved: Callable[[int, Path], None]) -> None:
        """Calls `saved` with the step and folder of each written checkpoint."""
        self._checkpoints.on_saved = lambda each: saved(each.step, each.path.parent)

    @property
    def folder(self) -> Path:
        return self._checkpoints.folder

    def restore(self, restore: Callable[[dict[str, Any]], None]) -> tuple[int, list[Life]] | None:
        """Restores the newest checkpoint. Returns its step, or 0, and the lives before; None if there is nothing."""
        saved = self._checkpoints.newest()
        if saved is not None:
            try:
                restore(self._checkpoints.load(saved))
            except StateDoesNotFit as error:
                raise StateDoesNotFit(does_not_fit(saved.path, str(error))) from None
        lives = self._journal.begin_another()
        if saved is None and not any(life.end for life in lives):
            return None
        return (saved.step if saved is not None else 0), lives

    def committed(self, step: int) -> None:
        """Records a step as applied: then all ranks have the step before it. Takes a checkpoint if it is due."""
        if self._held is not None and self._held[0] == step:  # an older one is from when this rank was the first
            self._checkpoints.offer(*self._held)
        self._held = None
        self._journal.reached(step)
        if self._checkpoints.is_due(step + 1):
            self._held = (step + 1, self._payload())

    def save_now(self, step: int) -> None:
        """Writes a checkpoint of the current state, from which `step` is computed next. Waits until it is written."""
        self._journal.reached(step)
        self._checkpoints.offer(step, self._payload())
        self._checkpoints.close(_WRITTEN_WITHIN_S)

    def close(self) -> None:
        """Waits up to _LAST_WAIT_S for checkpoints that are being written."""
        self._checkpoints.close()


class Journal:
    """A file with the lives of a run, one after the other. One rank at a time writes it, not always the same."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._number: int | None = None
        """The number of the current life."""
        self._first: int | None = None

    def begin_another(self) -> list[Life]:
        """Begins a life and returns the lives before. All ranks of the new life call it before any of them writes."""
        lives = self._read()
        self._number, self._first = len(lives), None
        return lives

    def reached(self, end: int) -> None:
        """Records that steps below `end` are committed."""
        with contextlib.suppress(OSError):  # a full disk must not stop the training
            if self._number is None or self._first is None:
                self._number, self._first = self._place(end)
            os.pwrite(self._file, _LIFE.pack(self._first, end), self._number * _LIFE.size)

    def _place(self, end: int) -> tuple[int, int]:
        """The number and first step of the current life, which another rank may have begun to write."""
        lives = self._read()
        number = max(0, len(lives) - 1) if self._number is None else self._number
        return number, lives[number].first if number < len(lives) else end

    def _read(self) -> list[Life]:
        written = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = len(written) - len(written) % _LIFE.size
        return [Life(*pair) for pair in _LIFE.iter_unpack(written[:whole])]
