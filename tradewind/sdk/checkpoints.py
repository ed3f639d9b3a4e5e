"""Checkpoints in a local folder: for the day on which everybody's memory is lost at once.

A checkpoint is there whole or not at all: it is written to one side, forced to the disk, and renamed. What a failing
disk leaves behind is found by its checksum and passed over. No failure to write one ever stops the training.
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
"""The last checkpoint of a process is worth any wait: who wants it to end sooner kills it."""
_UNWRITABLE: Final = (OSError, RuntimeError, pickle.PicklingError, TypeError, AttributeError)
"""A full disk comes out of torch as a RuntimeError; what cannot be pickled as any of the last three."""


@dataclass(frozen=True, slots=True)
class Saved:
    step: int
    """The step that is computed next from it."""
    path: Path


class Checkpoints:
    """Room is needed for `keep` + 1 of them: an old one goes only when the new one is safe."""

    def __init__(self, folder: str | os.PathLike[str], every_steps: int, keep: int = 2) -> None:
        if every_steps < 1 or keep < 1:
            raise ValueError(f"a checkpoint every {every_steps} steps, {keep} kept: both must be at least 1")
        self.folder = Path(folder)
        # A folder that cannot be made is an error now, while somebody is looking.
        self.folder.mkdir(parents=True, exist_ok=True)
        self._every_steps = every_steps
        self._keep = keep
        self._told = ""
        self.on_saved: Callable[[Saved], None] = lambda saved: None
        """Called by the thread that writes."""
        self._changed = threading.Condition()
        self._offered: tuple[int, dict[str, Any]] | None = None
        self._writing = False
        self._closed = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        """Started with the first checkpoint."""

    def is_due(self, step: int) -> bool:
        """With `step` to be computed next."""
        return step > 0 and step % self._every_steps == 0

    def newest(self) -> Saved | None:
        """The newest that can be read whole."""
        for saved in self._saved():
            if _is_whole(saved.path):
                return saved
            say(f"the checkpoint {saved.path} cannot be read whole and is passed over")
        return None

    def load(self, saved: Saved) -> dict[str, Any]:
        """On the CPU. A folder of checkpoints is trusted like the script itself: what is no plain data is unpickled."""
        return _load(saved.path)

    def offer(self, step: int, payload: dict[str, Any]) -> None:
        """Has it written in the background, and never waits. The payload is given away: nobody may change it any more.

        While one is being written, only the newest of those offered is kept.
        """
        with self._changed:
            self._offered = (step, payload)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_offered, name="tradewind-checkpoints", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything offered is written or given up. False if that takes longer."""
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
        """None, and a warning, if it cannot be written."""
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
        self._told = ""
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
        """Newest first."""
        try:
            found = [(match, path) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        except OSError:
            return []
        return sorted((Saved(int(match[1]), path) for match, path in found), key=lambda saved: -saved.step)

    def _prune(self, newest: int) -> None:
        """What lies above was unreadable when this run began: no reason to remove what can be read."""
        older = [saved for saved in self._saved() if saved.step <= newest]
        for saved in older[self._keep :]:
            with contextlib.suppress(OSError):
                saved.path.unlink(missing_ok=True)

    def _clear_half_written(self) -> None:
        """Left by a process that was killed. One that still writes fails to rename, says so, and does no harm."""
        for left in self.folder.glob("step-*.tmp"):
            left.unlink(missing_ok=True)

    def _make_durable(self) -> None:
        # Not every file system can do this for a folder; the checkpoint itself is already on the disk.
        with contextlib.suppress(OSError):
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _warn(self, step: int, error: BaseException) -> None:
        """Once for each reason, until one is written again."""
        reason = _reason(error)
        if reason == self._told:
            return
        self._told = reason
        saved = self._saved()
        fallback = f"from step {saved[0].step}" if saved else "from the beginning"
        say(
            f"the checkpoint of step {step} was not written to {self.folder} ({reason}); training goes on, "
            f"and if everything is lost it resumes {fallback}"
        )


def _seal(file: IO[bytes]) -> None:
    """The archive's own checksums leave out its directory, and torch's reader trusts that: all of it gets one more.

    It is the archive's comment, whose length is the last that an archive without one says.
    """
    file.seek(-len(_NO_COMMENT), os.SEEK_END)
    if file.read() != _NO_COMMENT:
        raise RuntimeError("torch wrote an archive with a comment of its own")
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
    """Of so many bytes from the beginning; leaves the file behind them."""
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
    """torch hides the disk's own words behind its own."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    told = cause if isinstance(cause, OSError) else error
    return (isinstance(told, OSError) and told.strerror) or str(told).splitlines()[0]


class Saving:
    """When checkpoints are taken, and what is known of the steps after the last one.

    A checkpoint counts for the world outside, so it is written only when every rank has its step: one step later.
    Beside it a journal records how far each life of the run came: if everything is lost at once, it tells what is taken
    again.
    """

    def __init__(self, folder: str | Path, every_steps: int, payload: Callable[[], dict[str, Any]]) -> None:
        """`payload` copies the state as it is now."""
        self._checkpoints = Checkpoints(folder, every_steps)
        self._payload = payload
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

    def committed(self, step: int) -> None:
        """Step `step` is all-reduced and applied, so all ranks have the step before it."""
        if self._held is not None and self._held[0] == step:  # older: from when this rank was the first, some time ago
            self._checkpoints.offer(*self._held)
        self._held = None
        self._journal.reached(step)
        if self._checkpoints.is_due(step + 1):
            self._held = (step + 1, self._payload())

    def save_now(self, step: int) -> None:
        """With `step` to be computed next, by somebody else and later. Waits until it is written."""
        self._journal.reached(step)
        self._checkpoints.offer(step, self._payload())
        self._checkpoints.close(_WRITTEN_WITHIN_S)

    def close(self) -> None:
        """Waits a while for what is being written."""
        self._checkpoints.close()


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
        """The first write continues where another rank of the same life stopped."""
        lives = self._read()
        number = max(0, len(lives) - 1) if self._number is None else self._number
        return number, lives[number].first if number < len(lives) else end

    def _read(self) -> list[Life]:
        written = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = len(written) - len(written) % _LIFE.size
        return [Life(*pair) for pair in _LIFE.iter_unpack(written[:whole])]
