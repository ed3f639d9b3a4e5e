"""One life of a host: started with the job's interpreter, spoken to over a Unix socket, seen to its end.

When `run` returns, the host is gone and so is everything it forked.
"""

import asyncio
import contextlib
import importlib.util
import os
import signal
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.worker.host_connection import Conversation, Hear, HostEnded, Streams, take_first
from agents.worker.leftovers import WorkerFolder, end_left, kill_left
from runtime import children
from runtime.errors import UserError
from tradewind.protocol.host import MESSAGE_LIMIT_BYTES

SOCKET_PATH_BYTES = 100
"""The kernel takes 107."""
LAST_WORDS = 5
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
        self._said: deque[str] = deque(maxlen=LAST_WORDS)

    async def run(self) -> str:
        """Until the host is gone; says why."""
        try:
            async with _socket_path(self._folder.path) as path, asyncio.TaskGroup() as tasks:
                came: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
                server = await asyncio.start_unix_server(take_first(came), path, limit=MESSAGE_LIMIT_BYTES)
                async with server:
                    self._process = await self._start(path)
                    tasks.create_task(self._keep_last_words(self._process), name="host/words")
                    tasks.create_task(self._watch(self._process), name="host/watch")
                    tasks.create_task(self._limit_warming(), name="host/warming")
                    await self._converse(*await came)
                raise HostEnded(await self._how_it_ended(self._process))
        except* HostEnded as ended:
            why = str(ended.exceptions[0])
        finally:
            kill_left(self._folder.left)
            if self._folder.cage is not None:
                self._folder.cage.kill()
        await end_left(self._folder.left)
        if self._folder.cage is not None:
            await self._folder.cage.empty()
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
            raise HostEnded(f"{command.python} cannot be started: {error.strerror}") from error
        except ValueError as error:
            raise HostEnded(f"{command.python!r} cannot be started: {error}") from error
        if self._folder.cage is not None:
            self._folder.cage.take(process.pid)
        self._folder.started(process.pid)
        return process

    def _on_forked(self, pid: int) -> None:
        self._folder.started(pid)

    def _on_exited(self, pid: int) -> None:
        self._folder.ended(pid)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """A host that exits before it has connected ends no conversation."""
        await process.wait()
        if self._writer is None:
            raise HostEnded(await self._how_it_ended(process))

    async def _keep_last_words(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while data := await process.stdout.read(CHUNK_BYTES):
            lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
            self._said.extend(lines)
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
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"exited with {code}"
        return f"{how}: {self._said[-1]}" if self._said and code != 0 else how


def find_host_file(given: str | None) -> Path:
    """The host's own file. Its package is found but not imported: it belongs to the job's environment."""
    if given is not None:
        if not Path(given).is_file():
            raise UserError(f"There is no host at {given}", "correct --host-file, or leave it out")
        return Path(given)
    found = importlib.util.find_spec("tradewind")
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        file = Path(folder) / "host" / "__main__.py"
        if file.is_file():
            return file
    raise UserError("The host (tradewind/host) is not installed beside this agent", "give its file with --host-file")


@contextlib.asynccontextmanager
async def _socket_path(folder: Path) -> AsyncIterator[str]:
    """In the worker's folder, or in a temporary one if that makes a path too long for a socket."""
    path = folder / "host.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        path.unlink(missing_ok=True)
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="tradewind-") as short:
        yield str(Path(short) / "host.sock")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
