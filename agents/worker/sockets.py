"""Unix sockets of a worker: which paths are short enough, and who may connect."""

import os
from pathlib import Path

PATH_BYTES = 107
"""Bytes of a socket's path that the kernel accepts."""


def is_short(path: Path) -> bool:
    return len(os.fsencode(path)) <= PATH_BYTES


def allow_all_users(path: Path) -> None:
    """Lets all users of the pod connect: the image of host and trainers may use another user than the agent's."""
    path.parent.chmod(0o711)
    path.chmod(0o666)
