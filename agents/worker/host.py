"""A host as a child process, started with the job's interpreter and connected by a Unix socket.

When `run` returns, the host and everything that it forked are gone.
"""

import asyncio
import contextlib
import signal
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.worker.host_connection import Conversation, Hear, HostEnded, Streams, take_first
from agents.worker.leftovers import WorkerFolder, end_left, kill_left
from agents.worker.sockets import is_short
from messages.labels import HOST_SOCKET
from runtime import children
from runtime.errors import UserError
from tradewind.protocol.host import MESSAGE_LIMIT_BYTES, installed_host

LAST_LINES = 5
CHUNK_BYTES = 64 * 1024
GONE_S = 5.0


@dataclass(frozen=True, slots=True)
class HostCommand:
    python: str
    file: Path
    env: Mapping[str, str]
    warm_s: float


class Host(Conversation):
    def __init__(self, command: HostCommand, folder: WorkerFolder, hear: Hear) -> None:
        super().__init__(hear, command.warm_s)
        self._command = command
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)

    async def run(self) -> str:
        """Runs until the host is gone. Returns why."""
        try:
            async with _socket_path(self._folder.path) as path, asyncio.TaskGroup() as tasks:
                came: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
                server = await asyncio.start_unix_server(take_first(came), path, limit=MESSAGE_LIMIT_BYTES)
                async with server:
                    self._process = await self._start(path)
                    tasks.create_task(self._keep_last_lines(self._process), name="host/words")
                    tasks.create_task(self._watch(self._process), name="host/watch")
                    tasks.create_task(self._limit_warming(), name="host/warming")
                    await self._converse(*await came)
                raise HostEnded(await self._how_it_ended(self._process))
        except* HostEnded as ended:
            why = str(ended.exceptions[0])
        finally:
            kill_left(self._folder.left)
            if self._folder.containment is not None:
                self._folder.containment.kill()
        await end_left(self._folder.left)
        if self._folder.containment is not None:
            await self._folder.containment.empty()
        for process in self._folder.left.processes:
            self._folder.ended(process.pid)
        self._gone.set()
        return why

    def _give_up(self, why: str) -> None:
        self._refused = self._refused or why
        if self._process is not None:
            children.signal_group(self._process.pid, signal.SIGKILL)

    async def _start(self, path: str) -> asyncio.subprocess.Process:
        command = self._command
        try:
            process = await children.start(
                (command.python, str(command.file), "--socket", path),
                env=command.env,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise HostEnded(f"cannot start {command.python}: {error.strerror}") from error
        except ValueError as error:
            raise HostEnded(f"cannot start {command.python!r}: {error}") from error
        if self._folder.containment is not None:
            self._folder.containment.take(process.pid)
        self._folder.started(process.pid)
        return process

    def _on_forked(self, pid: int) -> None:
        self._folder.started(pid)

    def _on_exited(self, pid: int) -> None:
        self._folder.ended(pid)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Raises `HostEnded` if the host exits before it connects; later, the end of the connection does that."""
        await process.wait()
        if self._writer is None:
            raise HostEnded(await self._how_it_ended(process))

    async def _keep_last_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while data := await process.stdout.read(CHUNK_BYTES):
            lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
            self._last_lines.extend(lines)
            self._log.info("host_said", lines=lines)

    async def _how_it_ended(self, process: asyncio.subprocess.Process) -> str:
        try:
            async with asyncio.timeout(GONE_S):
                code = await process.wait()
        except TimeoutError:
            children.signal_group(process.pid, signal.SIGKILL)
            code = await process.wait()
        if self._refused:
            return self._refused
        return how_it_exited(code, self._last_lines[-1] if self._last_lines else "")


def how_it_exited(code: int, last_line: str = "") -> str:
    how = f"was ended by {children.signal_name(-code)}" if code < 0 else f"exited with {code}"
    return f"{how}: {last_line}" if last_line and code != 0 else how


def find_host_file(given: str | None) -> Path:
    if given is not None:
        if not Path(given).is_file():
            raise UserError(f"There is no host at {given}", "correct --host-file, or leave it out")
        return Path(given)
    file = installed_host()
    if file is not None:
        return file
    raise UserError("The host (tradewind/host) is not installed beside this agent", "give its file with --host-file")


@contextlib.asynccontextmanager
async def _socket_path(folder: Path) -> AsyncIterator[str]:
    """Yields a path in the worker's folder, or in a temporary folder if that path is too long for a socket."""
    path = folder / HOST_SOCKET
    if is_short(path):
        path.unlink(missing_ok=True)
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="tradewind-") as short:
        yield str(Path(short) / HOST_SOCKET)
