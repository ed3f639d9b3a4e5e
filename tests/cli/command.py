"""The command in this process (`tradewind`) and as a process (`started`), with its two outputs and exit code."""

import asyncio
import contextlib
import gc
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner

from tradewind.cli import commands

TIMEOUT_S = 60.0
_ONE_AT_A_TIME = threading.Lock()
"""A command in this process uses its environment and its outputs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def hint(self) -> list[str]:
        """The words of the command that the last hint names."""
        hints = re.findall(r"^(?:Next|Try): (.*)$", self.err, re.MULTILINE)
        return hints[-1].split() if hints else []

    @property
    def error(self) -> str:
        """The message of the error, without its problems."""
        found = re.search(r"^Error: (.*)$", self.err, re.MULTILINE)
        return found[1] if found else ""

    def says(self, *values: object) -> bool:
        """Whether one line of either output contains all the values."""
        return any(all(str(value) in line for value in values) for line in (self.out + self.err).splitlines())


async def tradewind(*arguments: str, environ: Mapping[str, str], cwd: Path | None = None) -> Outcome:
    """Runs the command in a thread, so that masters in the test's loop can answer it."""
    return await asyncio.to_thread(invoked, *arguments, environ=environ, cwd=cwd)


def invoked(*arguments: str, environ: Mapping[str, str], cwd: Path | None = None) -> Outcome:
    unset = {name: None for name in os.environ if name.startswith("TRADEWIND_")}
    with _ONE_AT_A_TIME, contextlib.chdir(cwd or Path.cwd()), _restored():
        done = CliRunner().invoke(commands, arguments, env={**unset, **environ}, prog_name="tradewind")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """A command configures the logs and freezes the garbage collector for its process."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**configured)
        gc.unfreeze()


async def started(*arguments: str, environ: Mapping[str, str], cwd: Path | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tradewind", *arguments),
        env={**without_ours(os.environ), **environ},
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finished(process: asyncio.subprocess.Process, timeout_s: float = TIMEOUT_S) -> Outcome:
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return Outcome(process.returncode or 0, (out or b"").decode(), (err or b"").decode())


async def tradewind_process(*arguments: str, environ: Mapping[str, str], cwd: Path | None = None) -> Outcome:
    return await finished(await started(*arguments, environ=environ, cwd=cwd))


def without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("TRADEWIND_")}


async def until_printed(output: asyncio.StreamReader, text: bytes) -> None:
    while line := await output.readline():
        if text in line:
            return
    pytest.fail(f"the process ended and did not print {text!r}")
