"""Paths that a person gave. A `UserError` tells why a path is unusable."""

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
    """Replaces `~` by the home folder."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise UserError(f"{what} is {given!r}, but there is no such user here.", f"correct {what}") from None


def placed(given: str, folder: Path, what: str) -> Path:
    """Returns the absolute path, with the home folder for `~`. Relative paths start at `folder`."""
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
    """Reads the first bytes of a file. Raises `OSError`, and `UserError` if it is not a regular file.

    Opens without blocking, because an open of a pipe without a writer would wait for ever.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UserError(f"{path} is not a regular file", "give the path of a regular file")
        return file.read(most_bytes)
