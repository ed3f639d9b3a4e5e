"""Hosts and stores that are forked from one process with torch imported: a cold start costs 2 s of a core each.

`Warm` starts the process (`server.py`). In the environment of a test, `site/sitecustomize.py` replaces each host and
each store that starts: the new process asks the server for a fork, stands for it and ends with it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).with_name("site")
SERVER = Path(__file__).with_name("server.py")
ROOM = 64 * 1024
"""Bytes that a fork has for its environment in `/proc`, where agents and tests look for it."""


class Warm:
    """The server of one test process. It ends with that process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tw-warm-")
        self._socket = Path(self._folder.name, "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), str(self._socket)],
            env={"PATH": "", "ROOM": "x" * ROOM},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"warm\n", "see the server's standard error"

    @property
    def environ(self) -> dict[str, str]:
        return {"PYTHONPATH": str(SITE), "WARM_SOCKET": str(self._socket), "WARM_PREFIX": sys.prefix}

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()
