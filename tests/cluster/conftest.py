"""A real controller with stand-in workers, on a real bus; nothing of it is left after the test."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from agents.cluster import machine
from agents.cluster.settings import ClusterSettings
from agents.cluster.state import Known, uid_of
from messages import subjects
from messages.clusters import (
    Answer,
    ClusterHeartbeat,
    KeepWorkers,
    Presence,
    RemoveWorkers,
    WorkerObservation,
    WorkerTemplate,
)
from messages.ids import ClusterName, Epoch, JobName, WorkerId
from runtime.bus import Bus
from runtime.nats_server import NatsServer
from tests.conftest import Connect, eventually
from tests.topologies import hear_topologies

HERE = Path(__file__).parent
CLUSTER = ClusterName("local")
JOB = JobName("story")


class Bench:
    """Starts controllers, sends them commands like a master, and records their reports."""

    def __init__(self, bus: Bus, settings: ClusterSettings, folder: Path) -> None:
        self.bus = bus
        self.settings = settings
        self.topologies: list[ClusterHeartbeat] = []
        self._folder = folder
        self._started: list[asyncio.subprocess.Process] = []
        self._by_hand: list[asyncio.subprocess.Process] = []

    async def start(self, **changed: object) -> asyncio.subprocess.Process:
        settings = msgspec.structs.replace(self.settings, **changed)
        path = self._folder / f"settings{len(self._started)}.json"
        path.write_bytes(msgspec.json.encode(settings))
        with (self._folder / f"controller{len(self._started)}.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(HERE / "run_controller.py"), str(path)), stdout=output, stderr=output
            )
        self._started.append(process)
        return process

    async def start_and_hear(self, **changed: object) -> asyncio.subprocess.Process:
        heard = len(self.topologies)
        process = await self.start(**changed)
        await eventually(lambda: len(self.topologies) > heard, what="a topology of the new controller")
        return process

    def said(self, controller: int) -> str:
        return (self._folder / f"controller{controller}.log").read_text()

    def outputs(self) -> list[str]:
        """Paths of the workers' log files."""
        return [str(path) for path in Path(self.settings.run_dir).glob("*.log")]

    def output_of(self, uid: str) -> str:
        return Path(self.settings.run_dir, f"{uid}.log").read_text()

    async def keep(
        self, count: int, *, job: JobName = JOB, epoch: int = 1, env: dict[str, str] | None = None
    ) -> Answer:
        return await self.ask(KeepWorkers(job, count, WorkerTemplate(env=env or {})), epoch)

    async def ask(self, command: KeepWorkers | RemoveWorkers, epoch: int = 1) -> Answer:
        received = await self.bus.request(subjects.cluster_command(CLUSTER), command, 10.0, epoch=Epoch(epoch))
        assert isinstance(received.message, Answer)
        return received.message

    async def known(self) -> Known:
        bucket = await self.bus.bucket(subjects.STATE_BUCKET)
        entry = await bucket.get(subjects.known_key(CLUSTER))
        assert entry is not None
        return msgspec.json.decode(entry.value, type=Known)

    async def put_known(self, value: bytes) -> None:
        bucket = await self.bus.bucket(subjects.STATE_BUCKET)
        await bucket.put(subjects.known_key(CLUSTER), value)

    async def start_by_hand(self, uid: str) -> asyncio.subprocess.Process:
        command = [*self.settings.worker_command, "--job", JOB, "--cluster", CLUSTER, "--uid", uid]
        environment = {**os.environ, "TRADEWIND_NATS_URL": self.settings.nats_url}
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        self._by_hand.append(process)
        return process

    def seen(self, presence: Presence) -> list[WorkerObservation]:
        """The workers with this presence in the newest report."""
        workers = self.topologies[-1].workers if self.topologies else ()
        return [observation for observation in workers if observation.presence is presence]

    @property
    def alive(self) -> dict[WorkerId, int]:
        """Process ids of all live workers, by worker."""
        return {
            observation.worker: observation.status.pid
            for observation in self.seen(Presence.ALIVE)
            if observation.status is not None
        }

    @property
    def gone(self) -> dict[WorkerId, str]:
        return {observation.worker: observation.why for observation in self.seen(Presence.GONE)}

    async def until_alive(self, count: int) -> dict[WorkerId, int]:
        await eventually(
            lambda: len(self.alive) == count and not self.seen(Presence.STARTING),
            what=f"{count} workers alive",
        )
        return self.alive

    async def clean(self) -> None:
        for process in (*self._started, *self._by_hand):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
        uids = {uid_of(observation.worker) for heartbeat in self.topologies for observation in heartbeat.workers}
        for uid in uids:
            for pid in machine.of_place(uid, leader=None):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    return machine.birth_of(pid) is not None


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


@pytest.fixture
async def bench(nats_server: NatsServer, connect: Connect, tmp_path: Path) -> AsyncIterator[Bench]:
    bus = await connect("master/test")
    settings = ClusterSettings(
        cluster=CLUSTER,
        run_dir=str(tmp_path / "run"),
        nats_url=nats_server.url,
        connect_timeout_s=20.0,
        worker_command=(sys.executable, str(HERE / "stand_in_worker.py")),
    )
    made = Bench(bus, settings, tmp_path)
    await hear_topologies(bus, CLUSTER, made.topologies.append)
    yield made
    await made.clean()
