"""The processes of a local stack. Each has its own session, writes its output to a file, and is restarted."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from runtime import children
from runtime.errors import UserError
from runtime.exit_codes import EXIT_FAILED, EXIT_USER_ERROR
from runtime.nats_server import NatsServer
from runtime.retry import Backoff

FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 5.0
EARLY_S = 10.0
EARLY_AT_MOST = 3
"""Times in a row that a part may end within `EARLY_S` of its start."""
TAIL_LINES = 15
FINAL_CODES = (EXIT_USER_ERROR,)
"""Exit codes after which a restart does not help: a person must correct something."""


class StackFailed(UserError):
    """A part of the stack did not start or ended repeatedly; its log says why."""

    kind = "stack_failed"
    exit_code = EXIT_FAILED


class Part(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def log_file(self) -> Path: ...

    @property
    def pid(self) -> int:
        """The process id, or 0 while it does not run."""

    async def start(self) -> None: ...

    async def wait_exit(self) -> int: ...

    async def stop(self, grace_s: float) -> None: ...


class OwnProcess:
    """A process of a Tradewind module. Its path excludes the current folder, whose files could shadow modules."""

    def __init__(
        self, name: str, command: tuple[str, ...], environ: Mapping[str, str], folder: Path, *, guards_us: bool = False
    ) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._command = (sys.executable, "-P", "-m", *command)
        self._environ = environ
        self._folder = folder
        self._guards_us = guards_us
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = await children.start(
                self._command,
                env=self._environ,
                cwd=self._folder,
                stdin=asyncio.subprocess.PIPE if self._guards_us else asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                dies_with_us=not self._guards_us,
            )

    async def wait_exit(self) -> int:
        return await self._process.wait() if self._process is not None else 0

    async def stop(self, grace_s: float) -> None:
        if self._process is not None and self._process.returncode is None:
            await children.end(self._process, grace_s)


class BusServer:
    name = "nats-server"

    def __init__(self, folder: Path) -> None:
        self._server = NatsServer(folder / "bus")
        self.log_file = self._server.log_file

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int:
        return self._server.pid if self._server.is_running else 0

    async def start(self) -> None:
        await self._server.start()

    async def wait_exit(self) -> int:
        return await self._server.wait_exit()

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


def master(arguments: tuple[str, ...], environ: Mapping[str, str], folder: Path) -> OwnProcess:
    return OwnProcess("master", ("tradewind", "master", *arguments), environ, folder)


def controller(arguments: tuple[str, ...], environ: Mapping[str, str], folder: Path) -> OwnProcess:
    return OwnProcess("cluster-controller", ("tradewind", "cluster", *arguments), environ, folder)


def simulator(arguments: tuple[str, ...], environ: Mapping[str, str], folder: Path) -> OwnProcess:
    return OwnProcess("simulator", ("tradewind", "simulator", *arguments), environ, folder)


def guard(environ: Mapping[str, str], folder: Path) -> OwnProcess:
    """The process that cleans up if this one is killed; see `tradewind.local.guard`."""
    return OwnProcess("guard", ("tradewind.local.guard", str(folder)), environ, folder, guards_us=True)


async def keep(part: Part, say: Callable[[str], None]) -> None:
    """Restarts the part when it ends, with backoff, until cancelled. Raises if restarts do not help."""
    loop = asyncio.get_running_loop()
    early, backoff, started_s = 0, Backoff(FIRST_BACKOFF_S, MAX_BACKOFF_S), loop.time()
    while True:
        code = await part.wait_exit()
        if loop.time() - started_s > EARLY_S:
            early = 0
            backoff.reset()
        early += 1
        message, tail = f"The {part.name} ended with exit code {code}:", tail_of(part.log_file)
        if code in FINAL_CODES:
            raise UserError(message, "correct the problem in the lines above", tail)
        if early > EARLY_AT_MOST:
            raise StackFailed(message, f"read the lines above, or all of them in {part.log_file}", tail)
        say(restart_text(part.name, code))
        await backoff.wait()
        started_s = loop.time()
        await part.start()


def restart_text(name: str, code: int) -> str:
    return f"the {name} ended with exit code {code}; restarting it"


def tail_of(file: Path) -> tuple[str, ...]:
    with contextlib.suppress(FileNotFoundError):
        return tuple(file.read_text(errors="replace").splitlines()[-TAIL_LINES:])
    return ()
