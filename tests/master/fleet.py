"""A cluster and its workers that exist only on the bus: they send the messages of real ones and train nothing."""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from messages import subjects
from messages.clusters import Answer, ClusterHeartbeat, KeepWorkers, Presence, RemoveWorkers, WorkerObservation
from messages.codec import Received
from messages.envelope import Envelope, Message
from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.workers import (
    TrainerExit,
    WorkerExited,
    WorkerJoined,
    WorkerLeft,
    WorkerParked,
    WorkerPhase,
    WorkerReady,
    WorkerStatus,
)
from messages.worlds import Assignment, GatheredProgress, Halt, LogLines, Progress, RankProgress, Release
from runtime.bus import Bus
from runtime.settings import BusSettings
from tests.conftest import eventually

HEARTBEAT_S = 0.2


@dataclass
class Worker:
    status: WorkerStatus
    ranks: tuple[Rank, ...] = ()


class FakeFleet:
    def __init__(self, bus: Bus, cluster: str = "local") -> None:
        self.bus = bus
        self.cluster = ClusterName(cluster)
        self.workers: dict[WorkerId, Worker] = {}
        self.heard: list[tuple[Message, Envelope]] = []
        """All messages of a master to workers."""
        self.keeps: dict[JobName, int] = {}
        self.beats = 0
        """Number of heartbeats."""
        self._gone: list[WorkerObservation] = []
        self._incarnation = secrets.token_hex(4)
        self._seq = itertools.count(1)
        self._names = itertools.count(1)

    async def run(self) -> None:
        await self.bus.serve(subjects.cluster_command(self.cluster), self._on_command)
        for subject in (subjects.assignment(), subjects.halt(), subjects.release()):
            await self.bus.subscribe(subject, self._on_master)
        while True:
            self.tell_topology()
            self.beats += 1
            await asyncio.sleep(HEARTBEAT_S)

    def tell_topology(self) -> None:
        observations = tuple(
            WorkerObservation(worker.status.worker, worker.status.job, Presence.ALIVE, status=worker.status)
            for worker in self.workers.values()
        )
        heartbeat = ClusterHeartbeat(
            self.cluster,
            self._incarnation,
            next(self._seq),
            workers=(*observations, *self._gone),
            keeps=dict(self.keeps),
        )
        self.bus.publish(subjects.cluster_heartbeat(self.cluster), heartbeat)

    async def until_beats(self, more: int) -> None:
        last = self.beats + more
        await eventually(lambda: self.beats >= last, what=f"{more} heartbeats")

    def of(self, job: JobName) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.status.job == job]

    def add(self, job: JobName) -> Worker:
        name = WorkerId(f"w{next(self._names)}-{self._incarnation[:4]}")
        worker = Worker(WorkerStatus(name, self.cluster, job, seq=1, phase=WorkerPhase.IDLE))
        self.workers[name] = worker
        self._tell(worker, "joined", WorkerJoined(worker.status))
        return worker

    def vanish(self, worker: Worker) -> None:
        """Ends a worker without a message; the controller sees its process end."""
        del self.workers[worker.status.worker]
        # In every topology from now on: the next one may replace this one before it is sent.
        self._gone.append(
            WorkerObservation(worker.status.worker, worker.status.job, Presence.GONE, why="its process exited")
        )
        self.tell_topology()

    def exit(self, job: JobName, code: int = 0, tail: tuple[str, ...] = ()) -> None:
        """Ends all trainers of the job."""
        for worker in self.of(job):
            exits = tuple(TrainerExit(rank, code, tail=tail) for rank in worker.ranks)
            self._become(worker, WorkerPhase.ENDED, exits=exits)
            for exit_ in exits:
                self._tell(worker, "exited", WorkerExited(worker.status, exit_))

    def report(self, job: JobName, step: int, loss: float) -> None:
        reports = []
        for worker in self.of(job):
            ranks = tuple(RankProgress(rank, step, step, loss, 8, float(step), float(step)) for rank in worker.ranks)
            reports.append(Progress(job, worker.status.worker, worker.status.generation, ranks))
        self.bus.publish(subjects.progress(job), GatheredProgress(job, self.cluster, tuple(reports)))

    async def log(self, job: JobName, rank: int, lines: Iterable[str], *, stderr: bool = False) -> None:
        message = LogLines(job, Rank(rank), Generation(1), WorkerId("w"), tuple(lines), stderr=stderr)
        await self.bus.publish_durable(subjects.log(job, Rank(rank)), message)

    def assignments(self, job: JobName) -> list[Assignment]:
        return [said for said, _ in self.heard if isinstance(said, Assignment) and said.job == job]

    def halts(self, job: JobName) -> list[Halt]:
        return [said for said, _ in self.heard if isinstance(said, Halt) and said.job == job]

    async def _on_command(self, _subject: str, received: Received) -> Message:
        command = received.message
        self.heard.append((command, received.envelope))
        if isinstance(command, KeepWorkers):
            self.keeps[command.job] = command.count
            for _ in range(command.count - len(self.of(command.job))):
                self.add(command.job)
            if command.count == 0:
                self._remove(worker.status.worker for worker in self.of(command.job))
        elif isinstance(command, RemoveWorkers):
            self._remove(command.workers)
        self.tell_topology()
        return Answer(ok=True)

    def _remove(self, names: Iterable[WorkerId]) -> None:
        for name in tuple(names):
            self.workers.pop(name, None)

    def _on_master(self, _subject: str, received: Received) -> None:
        said = received.message
        self.heard.append((said, received.envelope))
        if isinstance(said, Assignment):
            for worker in self.of(said.job):
                self._obey(worker, said)
        elif isinstance(said, Halt):
            for worker in self.of(said.job):
                if said.generation > worker.status.generation:
                    worker.ranks = ()
                    self._become(worker, WorkerPhase.PARKED, said.generation)
                    self._tell(worker, "parked", WorkerParked(worker.status))
        elif isinstance(said, Release):
            for name in said.workers:
                leaving_worker = self.workers.pop(name, None)
                if leaving_worker is not None:
                    self._tell(leaving_worker, "left", WorkerLeft(leaving_worker.status, "released"))

    def _obey(self, worker: Worker, said: Assignment) -> None:
        member = next((member for member in said.members if member.worker == worker.status.worker), None)
        done = worker.status.phase in (WorkerPhase.READY, WorkerPhase.ENDED)
        already = worker.status.generation == said.generation and done
        if said.generation < worker.status.generation or already:
            return
        if member is None:
            worker.ranks = ()
            self._become(worker, WorkerPhase.IDLE, said.generation)
            return
        worker.ranks = tuple(Rank(rank) for rank in range(member.first_rank, member.first_rank + member.ranks))
        self._become(worker, WorkerPhase.READY, said.generation)
        self._tell(worker, "ready", WorkerReady(worker.status))

    def _become(
        self,
        worker: Worker,
        phase: WorkerPhase,
        generation: Generation | None = None,
        exits: tuple[TrainerExit, ...] = (),
    ) -> None:
        old = worker.status
        worker.status = WorkerStatus(
            old.worker,
            old.cluster,
            old.job,
            old.seq + 1,
            phase,
            generation if generation is not None else old.generation,
            exits=exits,
        )

    def _tell(self, worker: Worker, fact: str, message: Message) -> None:
        self.bus.publish(subjects.worker_fact(self.cluster, worker.status.worker, fact), message)


@contextlib.asynccontextmanager
async def fake_fleet(url: str, cluster: str = "local") -> AsyncIterator[FakeFleet]:
    bus = await Bus.connect(BusSettings(url=url, name=f"cluster/{cluster}"))
    fleet = FakeFleet(bus, cluster)
    running = asyncio.create_task(fleet.run(), name=f"fleet/{cluster}")
    try:
        yield fleet
    finally:
        running.cancel()
        await asyncio.wait({running})
        await bus.close()
        if not running.cancelled() and running.exception() is not None:
            raise AssertionError("the fleet failed") from running.exception()
