"""Starts the processes that a benchmark measures, waits for them, queries them over HTTP, and shows their logs."""

import http.client
import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.processes import leaving_none

_ANSWERS_WITHIN_S: Final = 10.0
_TAIL_CHARACTERS: Final = 2000
_Seen = TypeVar("_Seen")


class StackFailed(Exception):
    """A started process ended, or did not reach the awaited state in time."""


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder. Afterwards no process of the block is left; a failure contains the ends of the logs."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name, leaving_none():
        folder = Path(name)
        try:
            yield folder
        except StackFailed as failure:
            raise StackFailed(f"{failure}{tails(folder)}") from None


def start_logged(
    command: Sequence[str], folder: Path, name: str, extra_env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Starts a process in its own session, so that only the benchmark gets ctrl-C and ends it."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), **(extra_env or {})}
    # Without cached bytecode every cold start compiles much of torch again: seconds that only the peer would pay.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
        )


def wait(
    look: Callable[[], _Seen | None],
    awaited: str,
    alive: Sequence["subprocess.Popen[bytes]"],
    *,
    timeout_s: float,
    poll_s: float,
) -> _Seen:
    deadline_s = time.monotonic() + timeout_s
    while not (seen := look()):
        for process in alive:
            if (code := process.poll()) is not None:
                raise StackFailed(f"waited for {awaited}, but a process ended with exit code {code}")
        if time.monotonic() > deadline_s:
            raise StackFailed(f"timeout after {timeout_s:.0f} s: waited for {awaited}")
        time.sleep(poll_s)
    return seen


def answers(url: str) -> bool:
    try:
        read(url)
    except StackFailed:
        return False
    return True


def fetch(url: str, body: object = None) -> Any:
    return json.loads(read(url, body))


def read(url: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_ANSWERS_WITHIN_S) as response:
            content: bytes = response.read()
            return content
    except urllib.error.HTTPError as error:
        raise StackFailed(f"{url}: {error}: {error.read()!r}") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise StackFailed(f"{url}: {error}") from error


def tails(folder: Path) -> str:
    """The ends of the logs, for people."""
    logs = sorted([*folder.glob("*.log"), *folder.glob("run/**/*.log")])
    return "".join(f"\n--- {log.name}\n{log.read_text(errors='replace')[-_TAIL_CHARACTERS:]}" for log in logs)
