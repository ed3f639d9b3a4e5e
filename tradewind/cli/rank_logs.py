"""What ranks print, to files and to the terminal, as torchrun's --log-dir, --tee and --redirects ask for."""

import contextlib
import tempfile
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self, TextIO

from messages.api import LogLine
from runtime.errors import UserError
from tradewind.terminal import output


class Std(IntFlag):
    """torchrun's numbers."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


class Streams(NamedTuple):
    """Which streams of which rank."""

    of_all: Std = Std.NONE
    by_rank: Mapping[int, Std] = MappingProxyType({})

    @classmethod
    def parsed(cls, text: str) -> Self:
        """torchrun's `3`, or `0:1,1:2` for RANK:STD. Raises ValueError."""
        problem = f"{text!r} is neither 0, 1, 2, 3 nor RANK:STD,…"
        try:
            if ":" not in text:
                return cls(_std(text))
            pairs = (pair.split(":") for pair in text.split(","))
            return cls(by_rank={int(rank): _std(std) for rank, std in pairs})
        except ValueError:
            raise ValueError(problem) from None

    def has(self, line: LogLine) -> bool:
        return bool(self.by_rank.get(line.rank, self.of_all) & (Std.ERR if line.stderr else Std.OUT))

    @property
    def any(self) -> bool:
        return self != Streams()


def _std(text: str) -> Std:
    if text not in {"0", "1", "2", "3"}:
        raise ValueError(text)
    return Std(int(text))


class Outputs(NamedTuple):
    folder: str | None = None
    tee: Streams = Streams()
    redirects: Streams = Streams()
    shown: frozenset[int] | None = None
    """Ranks whose lines are shown; None: all."""


class RankLogs:
    """Files of each rank in a folder of the job, opened when they are first written to."""

    def __init__(self, outputs: Outputs, job: str) -> None:
        self._tee, self._redirects, self._shown = outputs.tee, outputs.redirects, outputs.shown
        self._files: dict[tuple[int, bool], TextIO] = {}
        self._open = contextlib.ExitStack()
        self.folder: Path | None = None
        if outputs.folder is not None or self._tee.any or self._redirects.any:
            self.folder = _made(outputs.folder, job)
        if self.folder is not None and not (self._tee.any or self._redirects.any):
            self._tee = Streams(Std.ALL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._open.close()
        except OSError as error:
            self._give_up(error)

    def take(self, line: LogLine) -> None:
        if self.folder is not None and (self._redirects.has(line) or self._tee.has(line)):
            try:
                self._file(self.folder, line).write(f"{line.line}\n")
            except OSError as error:
                self._give_up(error)
        redirected = self.folder is not None and self._redirects.has(line)
        if not redirected and (self._shown is None or line.rank in self._shown):
            output.show_line(line)

    def _file(self, folder: Path, line: LogLine) -> TextIO:
        key = (line.rank, line.stderr)
        if key not in self._files:
            path = folder / str(line.rank) / ("stderr.log" if line.stderr else "stdout.log")
            path.parent.mkdir(exist_ok=True)
            self._files[key] = self._open.enter_context(path.open("a", buffering=1))
        return self._files[key]

    def _give_up(self, error: OSError) -> None:
        """The job is worth more than its files: all lines are shown from here on."""
        output.say(f"cannot write to {self.folder}: {error.strerror}; from here on the lines are only shown")
        self.folder = None
        with contextlib.suppress(OSError):
            self._open.close()


def _made(folder: str | None, job: str) -> Path:
    try:
        path = Path(folder or tempfile.mkdtemp(prefix="tradewind-logs-")).absolute() / job
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"folder {folder}" if folder is not None else "temporary folder"
        raise UserError(
            f"The {what} for --log-dir cannot be made: {error.strerror}.", "give another one with --log-dir"
        ) from error
    return path
