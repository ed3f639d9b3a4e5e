"""Paths that a person gave, as far as they can be used at all; else one sentence that says why not."""

import errno
import os
import stat
from pathlib import Path

from runtime.errors import UserError


def current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UserError("The current folder does not exist any more.", "cd to another folder") from None


def expanded(given: str, what: str) -> Path:
    """With the home folder for `~`."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise UserError(f"{what} is {given!r}, but there is no such user here.", f"correct {what}") from None


def placed(given: str, folder: Path, what: str) -> Path:
    """The absolute path, with the home folder for `~`; a relative one is taken from the folder."""
    hint = f"correct {what}"
    path = folder / expanded(given, what)
    try:
        path.stat()
    except ValueError:
        raise UserError(f"{what} is {given!r}: it contains a NUL character, which no path can.", hint) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{what} is {given!r}, whose symbolic links form a circle.", hint) from None
    return path.resolve()


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a file. Raises `OSError`, and `UserError` for what is no regular file.

    It is opened without waiting: a pipe that nobody writes to would never be opened otherwise.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UserError(f"{path} is not a regular file", "give the path of a file that is there")
        return file.read(most_bytes)
