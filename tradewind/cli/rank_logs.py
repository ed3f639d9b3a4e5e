"""Writes the ranks' output to files and the terminal, for torchrun's --log-dir, --tee and --redirects."""

import contextlib
import tempfile
from pathlib import Path
from typing import Self, TextIO

from messages.api import LogLine
from runtime.errors import UserError
from tradewind.cli.torchrun_options import Outputs, Std, Streams
from tradewind.terminal import output


class RankLogs:
    """Files of each rank in the job's folder, opened at their first line."""

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
            self._stop_writing(error)

    def take(self, line: LogLine) -> None:
        if self.folder is not None and (self._redirects.has(line) or self._tee.has(line)):
            try:
                self._file(self.folder, line).write(f"{line.line}\n")
            except OSError as error:
                self._stop_writing(error)
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

    def _stop_writing(self, error: OSError) -> None:
        """Stops writing files, so that the job continues. All further lines are shown."""
        output.say(f"cannot write to {self.folder}: {error.strerror}; further lines are only shown")
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
            f"The {what} for --log-dir cannot be created: {error.strerror}.", "choose another folder with --log-dir"
        ) from error
    return path
