"""A master that a test controls, a store for real trainers, and agents that a test starts and ends."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from agents.worker.main import main
from agents.worker.settings import WorkerSettings
from messages import subjects
from messages.codec import Received
from messages.ids import Epoch, Generation, Rank, WorkerId
from messages.jobs import Launch
from messages.workers import TrainerExit, WorkerHeartbeat, WorkerPhase, WorkerStatus
from messages.worlds import (
    Assignment,
    EndStalled,
    Halt,
    Invite,
    Locate,
    LogLines,
    Progress,
    Release,
    StoreAddress,
)
from runtime import children
from runtime.bus import Bus
from runtime.process import Stop
from tests.conftest import eventually
from tests.worker.builders import JOB, LOCAL, a_member, an_assignment

SECONDS = 60.0
"""Most seconds of a wait; on an idle machine the longest takes 3 s."""


class FakeMaster:
    """A master that records all messages of workers, and makes no decisions of its own."""

    def __init__(self, bus: Bus, epoch: int = 1) -> None:
        self.bus = bus
        self.epoch = Epoch(epoch)
        self.statuses: dict[WorkerId, WorkerStatus] = {}
        self.facts: list[tuple[WorkerId, str, object]] = []
        self.progress: list[Progress] = []
        self.heard_lines: list[LogLines] = []

    async def listen(self) -> None:
        await self.bus.ensure_stream(subjects.LOGS_STREAM, subjects.LOGS_STREAM_SUBJECTS, 64 * 1024 * 1024, 3600)
        await self.bus.subscribe(f"{subjects.PREFIX}.worker.*.*.*", self._on_worker)
        await self.bus.subscribe(subjects.log(JOB), self._on_training)

    def assigns(self, generation: int, *workers: WorkerId, launch: Launch, store: StoreAddress) -> Assignment:
        """Publishes a world in which each worker has as many ranks as slots."""
        members = []
        first_rank = 0
        for group_rank, worker in enumerate(workers):
            slots = self.statuses[worker].slots
            members.append(a_member(worker, first_rank, slots, group_rank=group_rank))
            first_rank += slots
        assignment = an_assignment(generation, *members, launch=launch, store=store, stop_grace_s=2.0)
        self.bus.publish(subjects.assignment(JOB), assignment, epoch=self.epoch)
        return assignment

    def changes(self, world: Assignment) -> None:
        """Publishes this world."""
        self.bus.publish(subjects.assignment(JOB), world, epoch=self.epoch)

    def invites(self, world: Assignment, *workers: WorkerId) -> None:
        self.bus.publish(subjects.invite(JOB), Invite(JOB, workers, world, "a test"), epoch=self.epoch)

    def halts(self, generation: int, grace_s: float = 2.0) -> None:
        self.bus.publish(subjects.halt(JOB), Halt(JOB, Generation(generation), "a test", grace_s), epoch=self.epoch)

    def locates(self, number: int) -> None:
        self.bus.publish(subjects.locate(JOB), Locate(JOB, Generation(1), number), epoch=self.epoch)

    def ends_stalled(self, generation: int, *ranks: int) -> None:
        order = EndStalled(JOB, Generation(generation), tuple(map(Rank, ranks)), STALLED)
        self.bus.publish(subjects.end_stalled(JOB), order, epoch=self.epoch)

    def releases(self, *workers: WorkerId) -> None:
        self.bus.publish(subjects.release(JOB), Release(JOB, workers, "a test"), epoch=self.epoch)

    async def keeps(self, assignment: Assignment | None, halted: int) -> None:
        bucket = await self.bus.bucket(subjects.STATE_BUCKET)
        record = {"phase": "running", "epoch": self.epoch, "halted": halted, "assignment": assignment}
        record["submitted_at"] = SUBMITTED_AT
        await bucket.put(subjects.record_key(JOB), msgspec.json.encode(record))

    async def until(self, worker: WorkerId, phase: WorkerPhase, generation: int) -> WorkerStatus:
        def is_there() -> bool:
            status = self.statuses.get(worker)
            return status is not None and (status.phase, status.generation) == (phase, generation)

        await eventually(is_there, SECONDS, f"{worker} {phase} in generation {generation}")
        return self.statuses[worker]

    async def until_lines(self, rank: int, expected: list[str]) -> None:
        def heard() -> list[str]:
            return [line for lines in self.heard_lines if lines.rank == rank for line in lines.lines]

        await eventually(lambda: heard() == expected, SECONDS, f"rank {rank} to write {expected}")

    async def workers(self, count: int = 1) -> list[WorkerId]:
        """Waits for `count` warm workers without an assignment, and returns all of them."""

        def warm() -> list[WorkerId]:
            return sorted(worker for worker, status in self.statuses.items() if status.phase is WorkerPhase.IDLE)

        await eventually(lambda: len(warm()) >= count, SECONDS, f"{count} warm workers")
        return warm()

    def sent(self, worker: WorkerId) -> list[str]:
        return [fact for of, fact, _ in self.facts if of == worker]

    def exits(self, worker: WorkerId) -> list[TrainerExit]:
        return list(self.statuses[worker].exits)

    async def stored(self) -> list[LogLines]:
        async with contextlib.aclosing(self.bus.replay(subjects.LOGS_STREAM, subjects.log(JOB))) as stored:
            return [received.message async for _, received in stored if isinstance(received.message, LogLines)]

    async def lines(self, rank: int, *, stderr: bool = False) -> list[str]:
        """The lines that the rank has written in all generations."""
        batches = [lines for lines in await self.stored() if (lines.rank, lines.stderr) == (rank, stderr)]
        return [line for batch in batches for line in batch.lines]

    def _on_worker(self, subject: str, received: Received) -> None:
        parsed = subjects.parse_worker(subject)
        status: WorkerStatus | None = getattr(received.message, "status", None)
        if parsed is None:
            return
        if isinstance(received.message, Progress):
            self.progress.append(received.message)
        elif not isinstance(received.message, WorkerHeartbeat):
            self.facts.append((parsed.worker, parsed.what, received.message))
        known = self.statuses.get(parsed.worker)
        if status is not None and (known is None or status.seq > known.seq):
            self.statuses[parsed.worker] = status

    def _on_training(self, _subject: str, received: Received) -> None:
        if isinstance(received.message, LogLines):
            self.heard_lines.append(received.message)


class Agent:
    """A worker-agent in this process, asked to stop like a process is."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.stop = Stop()
        self._task = asyncio.get_running_loop().create_task(main(settings, self.stop), name="agent")

    async def ended(self) -> int:
        async with asyncio.timeout(SECONDS):
            return await self._task

    async def end(self) -> None:
        if not self._task.done():
            self.stop.on_signal(signal.SIGINT)
            self.stop.on_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            await self._task


@contextlib.asynccontextmanager
async def an_agent(nats_url: str, run_dir: Path, *, uid: str = "w1", slots: int = 1) -> AsyncIterator[Agent]:
    agent = Agent(settings_for(nats_url, run_dir, uid=uid, slots=slots))
    try:
        yield agent
    finally:
        await agent.end()


def settings_for(nats_url: str, run_dir: Path, *, uid: str = "w1", slots: int = 1) -> WorkerSettings:
    return WorkerSettings(
        job=JOB,
        cluster=LOCAL,
        uid=uid,
        slots=slots,
        run_dir=str(run_dir),
        nats_url=nats_url,
        connect_timeout_s=SECONDS,
    )


@contextlib.asynccontextmanager
async def an_agent_process(settings: WorkerSettings) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs an agent in its own process, which a test can kill."""
    chosen = msgspec.structs.asdict(settings).items()
    given = {f"TRADEWIND_{name.upper()}": str(value) for name, value in chosen if value not in (None, "")}
    process = await children.start((sys.executable, "-m", "agents.worker"), env={**os.environ, **given})
    try:
        yield process
    finally:
        await children.end(process, 5.0)


STORE = """
import socket, sys, time
from torch.distributed import TCPStore
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
listener.bind(("127.0.0.1", 0))
listener.listen(64)
port = listener.getsockname()[1]
store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.fileno())
print(port, flush=True)
sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def a_store() -> AsyncIterator[StoreAddress]:
    """Runs a TCPStore for real trainers of one generation."""
    process = await children.start(
        (sys.executable, "-c", STORE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        dies_with_us=True,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            port = int(await process.stdout.readline())
        yield StoreAddress("127.0.0.1", port)
    finally:
        await children.end(process, 0.0)


SUBMITTED_AT = 1_700_000_000.25
NO_STORE = StoreAddress("127.0.0.1", 9)
"""Address for scripts that use no store."""
STALLED = "its peers wait"


def a_script(folder: Path, source: str, name: str = "train.py") -> Launch:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(source)
    return Launch(script=str(folder / name), workdir=str(folder))


def a_worker_of_this_process(place: str) -> WorkerId:
    """An id that no other test process uses: agents end all processes that carry the id of their worker."""
    return WorkerId(f"{place}-{os.getpid():x}")


def pids_with(mark: str) -> list[int]:
    """Ids of the live processes that have this worker's id in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                if alive and f"TRADEWIND_WORKER={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


async def raw_publish(url: str, subject: str, payload: bytes) -> None:
    """Publishes bytes without the codec, as any client of the bus could."""
    host, port = url.removeprefix("nats://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.readline()
        writer.write(b'CONNECT {"verbose": false}\r\n')
        writer.write(f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\nPING\r\n")
        await writer.drain()
        async with asyncio.timeout(SECONDS):
            while await reader.readline() != b"PONG\r\n":
                pass
    finally:
        writer.close()
