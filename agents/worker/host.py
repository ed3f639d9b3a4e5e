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
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.worker import host_messages as wire
from agents.worker.leftovers import WorkerFolder, end_left, kill_left
from messages.ids import Generation, Rank
from runtime import children
from runtime.errors import UserError
from runtime.logs import Once, logger
from runtime.waiting import first_of

SOCKET_PATH_BYTES = 100
"""The kernel takes 107."""
LAST_WORDS = 5
CHUNK_BYTES = 64 * 1024
STOP_ANSWER_S = 8.0
"""After the grace of a stop; a host that is silent for longer is given up."""
END_S = 8.0
"""A host gives its trainers 2 s, and itself 5 more."""
GONE_S = 5.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class HostCommand:
    python: str
    file: Path
    env: Mapping[str, str]
    warm_s: float


class HostEnded(Exception):
    """Why this life of the host is over."""


class Host:
    def __init__(self, command: HostCommand, folder: WorkerFolder, hear: Callable[[wire.HostMessage], None]) -> None:
        self._command = command
        self._folder = folder
        self._hear = hear
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._warm = asyncio.Event()
        self._gone = asyncio.Event()
        self._refused = ""
        self._said: deque[str] = deque(maxlen=LAST_WORDS)
        self._forking: dict[Generation, set[Rank]] = {}
        self._pids: dict[tuple[Generation, Rank], int] = {}
        self._stops: list[tuple[Generation, asyncio.Event]] = []
        self._log = logger()
        self._log_once = Once()

    async def run(self) -> str:
        """Until the host is gone; says why."""
        try:
            async with _socket_path(self._folder.path) as path, asyncio.TaskGroup() as tasks:
                streams: asyncio.Queue[Streams] = asyncio.Queue()
                server = await asyncio.start_unix_server(
                    lambda reader, writer: streams.put_nowait((reader, writer)), path, limit=wire.LINE_LIMIT_BYTES
                )
                async with server:
                    self._process = await self._start(path)
                    tasks.create_task(self._keep_last_words(self._process), name="host/words")
                    tasks.create_task(self._watch(self._process), name="host/watch")
                    tasks.create_task(self._limit_warming(), name="host/warming")
                    await self._converse(*await streams.get())
                raise HostEnded(await self._how_it_ended(self._process))
        except* HostEnded as ended:
            why = str(ended.exceptions[0])
        finally:
            kill_left(self._folder.left)
        await end_left(self._folder.left)
        for process in self._folder.left.processes:
            self._folder.ended(process.pid)
        self._gone.set()
        return why

    def fork(self, generation: Generation, trainers: tuple[wire.TrainerSpec, ...]) -> None:
        self._forking[generation] = {trainer.rank for trainer in trainers}
        self._send(wire.Fork(generation, trainers))

    async def stop(self, generation: Generation, grace_s: float) -> bool:
        """Whether the host said that no trainer up to this generation is left; if it says nothing, it is given up."""
        answered = asyncio.Event()
        self._stops.append((generation, answered))
        self._send(wire.Stop(generation, grace_s))
        if not await first_of(answered, self._gone, timeout_s=grace_s + STOP_ANSWER_S):
            self._give_up(f"did not stop its trainers within {grace_s + STOP_ANSWER_S:.0f} s")
        return answered.is_set()

    async def end(self) -> None:
        """Politely, then not. A host that is still importing would not listen."""
        if not self._warm.is_set():
            self._give_up("was ended before it was warm")
        self._send(wire.Exit())
        try:
            async with asyncio.timeout(END_S):
                await self._gone.wait()
        except TimeoutError:
            self._give_up(f"did not exit within {END_S:.0f} s")

    def _send(self, command: wire.Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode(command))

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
        self._folder.started(process.pid)
        return process

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while line := await reader.readline():
                self._take(line)
        except (ValueError, ConnectionError) as error:
            self._give_up(f"cannot be understood: {error}")
        finally:
            writer.close()

    def _take(self, line: bytes) -> None:
        try:
            message = wire.decode(line)
        except msgspec.DecodeError as error:
            if self._log_once(str(error)):
                self._log.warning("host_message_dropped", error=str(error), line=line[:200])
            return
        match message:
            case wire.Hello():
                self._log.info("host_warm", python=message.python, torch=message.torch, warm_s=message.warm_s)
                self._warm.set()
            case wire.Forked():
                self._folder.started(message.pid)
                self._pids[message.generation, message.rank] = message.pid
                self._forking.get(message.generation, set()).discard(message.rank)
            case wire.ForkFailed():
                self._forking.get(message.generation, set()).discard(message.rank)
            case wire.Exited():
                pid = self._pids.pop((message.generation, message.rank), None)
                if pid is not None:
                    self._folder.ended(pid)
            case wire.Stopped():
                self._answer_stop(message.generation)
            case wire.Refused():
                self._on_refused(message.why)
            case wire.Output() | wire.Reported():
                pass
        self._hear(message)

    def _answer_stop(self, generation: Generation) -> None:
        for stop in self._stops:
            if stop[0] == generation:
                self._stops.remove(stop)
                stop[1].set()
                return

    def _on_refused(self, why: str) -> None:
        """A refusal names no trainer: if it was a fork, none of those that were not yet answered will be."""
        self._log.error("host_refused", why=why)
        if not self._warm.is_set():
            self._refused = why
            return
        for generation, ranks in self._forking.items():
            for rank in sorted(ranks):
                self._hear(wire.ForkFailed(generation, rank, why))
        self._forking.clear()

    async def _limit_warming(self) -> None:
        try:
            async with asyncio.timeout(self._command.warm_s):
                await self._warm.wait()
        except TimeoutError:
            self._give_up(f"did not import torch within {self._command.warm_s:.0f} s")

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
