"""The store processes: one for each job that needs a store, and one warm spare.

Importing torch takes seconds, so the spare starts ahead: a new job's first store, and the next one of a job whose
process died, take milliseconds. Failures are reported to the job, whose core decides about its world.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import assert_never

import msgspec

from controlplane.stores.protocol import Command, Failed, Met, Report, Start, Started, Waiting, Warm, Watch
from messages.decoding import Decoder
from messages.ids import Generation, JobName
from messages.worlds import StoreAddress
from runtime.errors import Temporary
from runtime.logs import logger
from runtime.retry import Backoff
from runtime.waiting import first_of

WARM_TIMEOUT_S = 60.0
START_TIMEOUT_S = 15.0
END_TIMEOUT_S = 2.0
RESPAWN_FIRST_S = 0.2
RESPAWN_MOST_S = 10.0
MAX_LINE_BYTES = 4 * 1024 * 1024
ENDED = "the store process has ended"
RESOLVER_OPTIONS = "timeout:1 attempts:1"
"""Limits a lookup to one second, because the store looks up each client's name on its only thread."""

_encoder = msgspec.json.Encoder()
_decoder: Decoder[Report] = Decoder(Report)


class StoreUnavailable(Temporary):
    """A store could not be started."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    host: str
    """Host to which trainers connect."""
    bind: str
    """IPv4 address on which the stores listen."""
    port_from: int
    port_to: int


@dataclass(frozen=True, slots=True)
class StoreProcess:
    pid: int
    job: JobName | None
    """None for the spare."""


class StoreServers:
    def __init__(
        self,
        place: StorePlace,
        on_lost: Callable[[JobName], None],
        on_ranks: Callable[[JobName, Waiting | Met], None],
        command: tuple[str, ...] = (sys.executable, "-P", "-m", "controlplane.stores.server"),
    ) -> None:
        self._place = place
        self._on_lost = on_lost
        self._on_ranks = on_ranks
        self._command = command
        self._spares: asyncio.Queue[_Child] = asyncio.Queue(maxsize=1)
        self._of_job: dict[JobName, _Child] = {}
        self._alive: set[_Child] = set()
        self._taking = asyncio.Lock()
        self._log = logger()

    async def run(self) -> None:
        """Keeps one spare warm until cancelled, then ends all store processes."""
        try:
            async with asyncio.TaskGroup() as readers:
                await self._keep_spare(readers)
        finally:
            await self._end_all()

    async def start(self, job: JobName, generation: Generation) -> StoreAddress:
        try:
            async with asyncio.timeout(WARM_TIMEOUT_S):
                child = await self._child_of(job)
        except TimeoutError:
            raise StoreUnavailable(f"no store process became ready within {WARM_TIMEOUT_S:g} s") from None
        place = self._place
        answered = child.ask_to_start(Start(generation, place.bind, place.port_from, place.port_to))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                answer = await answered
        except TimeoutError:
            child.kill()
            raise StoreUnavailable(f"the store process did not answer within {START_TIMEOUT_S:g} s") from None
        if isinstance(answer, Failed):
            raise StoreUnavailable(answer.why)
        return StoreAddress(place.host, answer.port)

    def watch(self, job: JobName, generation: Generation, world_size: int, meet_s: float) -> None:
        child = self._of_job.get(job)
        if child is not None:
            child.tell(Watch(generation, world_size, meet_s))

    def stop(self, job: JobName) -> None:
        """Ends the stores of a job."""
        child = self._of_job.pop(job, None)
        if child is not None:
            child.job = None
            child.close()

    def processes(self) -> tuple[StoreProcess, ...]:
        """All running store processes, including the spare."""
        return tuple(StoreProcess(child.pid, child.job) for child in self._alive)

    async def _child_of(self, job: JobName) -> "_Child":
        async with self._taking:
            known = self._of_job.get(job)
            if known is not None:
                return known
            child = await self._spares.get()
            while child.gone.is_set():
                child = await self._spares.get()
            child.job = job
            child.taken.set()
            self._of_job[job] = child
            return child

    async def _keep_spare(self, readers: asyncio.TaskGroup) -> None:
        backoff = Backoff(RESPAWN_FIRST_S, RESPAWN_MOST_S)
        while True:
            if await self._spare_was_taken(readers):
                backoff.reset()
                continue
            self._forget_dead_spare()
            self._log.warning("spare_store_process_lost")
            await backoff.wait()

    async def _spare_was_taken(self, readers: asyncio.TaskGroup) -> bool:
        """Starts a spare and waits until a job takes it; False if it ends before."""
        try:
            child = await _Child.spawn(self._command)
        except OSError as error:
            self._log.error("store_process_not_started", error=str(error))
            return False
        self._alive.add(child)
        readers.create_task(self._attend(child), name=f"store-process/{child.pid}")
        if not await first_of(child.warm, child.gone, timeout_s=WARM_TIMEOUT_S):
            child.kill()
        if child.warm.is_set() and not child.gone.is_set():
            self._spares.put_nowait(child)
            await first_of(child.taken, child.gone)
        return child.taken.is_set()

    async def _attend(self, child: "_Child") -> None:
        async for report in child.reports():
            match report:
                case Warm():
                    child.warm.set()
                case Started() | Failed():
                    child.answer(report)
                case Waiting() | Met():
                    if child.job is not None:
                        self._on_ranks(child.job, report)
                case _:
                    assert_never(report)
        await child.end()
        self._alive.discard(child)
        if child.job is not None:
            self._of_job.pop(child.job, None)
            self._log.warning("store_process_lost", pid=child.pid, job=child.job)
            self._on_lost(child.job)

    def _forget_dead_spare(self) -> None:
        if not self._spares.empty():
            self._spares.get_nowait()

    async def _end_all(self) -> None:
        async with asyncio.TaskGroup() as ends:
            for child in self._alive:
                ends.create_task(child.end(), name=f"store-process-end/{child.pid}")


class _Child:
    def __init__(
        self, process: asyncio.subprocess.Process, commands: asyncio.StreamWriter, reports: asyncio.StreamReader
    ) -> None:
        self.job: JobName | None = None
        self.pid = process.pid
        self.warm = asyncio.Event()
        self.taken = asyncio.Event()
        self.gone = asyncio.Event()
        self._process = process
        self._commands = commands
        self._reports = reports
        self._starts: dict[int, asyncio.Future[Started | Failed]] = {}

    @classmethod
    async def spawn(cls, command: tuple[str, ...]) -> "_Child":
        """Starts a process in its own session, so that Ctrl-C reaches only the master, which ends its children."""
        environment = {"RES_OPTIONS": RESOLVER_OPTIONS, "OMP_NUM_THREADS": "1"} | os.environ
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
        assert process.stdin is not None and process.stdout is not None  # they were asked for
        return cls(process, process.stdin, process.stdout)

    async def reports(self) -> AsyncIterator[Report]:
        """Reports of the process, until it ends or sends an unreadable line."""
        try:
            while line := await self._reports.readline():
                yield _decoder.decode(line)
        except ValueError as error:
            logger().error("store_process_unreadable", pid=self.pid, error=str(error))
            self.kill()

    def ask_to_start(self, command: Start) -> "asyncio.Future[Started | Failed]":
        future = asyncio.get_running_loop().create_future()
        self._starts[command.generation] = future
        if self.gone.is_set():
            self.answer(Failed(command.generation, ENDED))
        self.tell(command)
        return future

    def answer(self, report: Started | Failed) -> None:
        future = self._starts.pop(report.generation, None)
        if future is not None and not future.done():
            future.set_result(report)

    def tell(self, command: Command) -> None:
        if not self._commands.is_closing():
            self._commands.write(_encoder.encode(command) + b"\n")

    def close(self) -> None:
        """Closes its stdin, which ends the process."""
        self._commands.close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        self.gone.set()
        self.close()
        for generation in tuple(self._starts):
            self.answer(Failed(generation, ENDED))
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
