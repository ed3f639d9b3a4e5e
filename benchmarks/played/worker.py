"""A played worker-agent: its subscriptions, messages and answers. Only this module knows all message formats.

It answers a halt at once: the time that trainers take to park is not measured. A plain script's trainers need half a
second or more from their assignment to their start, as real ones do. Every message is a struct of `messages`, encoded
by `messages.codec`. A process decodes a message to all workers of a job once, not once for each of its workers. It also
applies deltas once: the production code applies and verifies a delta of 10,000 members in 1 ms and builds an assignment
in 8 ms; for each of 5,000 workers of a process that would take 45 s of the cores that the master needs. For the same
reason a process fetches a stored world once.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from agents.worker.progress import REPORT_EVERY_S
from agents.worker.state import WorkerRules
from agents.worker.worlds import WorldCache
from benchmarks.played.connection import Connection, Traffic
from messages import codec, subjects
from messages.codec import Received, Rejected
from messages.compact_worlds import Digest, StoredAssignment, StoredInvite, WorldReference
from messages.envelope import Envelope, Message
from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.measured import StepsMeasured
from messages.workers import (
    StopWorker,
    TrainerStatus,
    WorkerHeartbeat,
    WorkerJoined,
    WorkerLeft,
    WorkerParked,
    WorkerPhase,
    WorkerPosition,
    WorkerReady,
    WorkerStatus,
    WorkerSwitched,
)
from messages.world_deltas import AssignmentDelta
from messages.worlds import Assignment, EndStalled, Halt, Invite, Locate, Member, Progress, RankProgress, Release

HEARTBEAT_S: Final = WorkerRules().heartbeat_s
PROGRESS_S: Final = REPORT_EVERY_S
RAW_SUBJECT: Final = "benchmark.raw"
"""Subject of a message to all played workers that measures the bus alone; not part of the product."""
PLAYED: Final = "played: "
"""Prefix of each reason for which a played worker ends; it distinguishes them from the master's reasons."""
STEP_S: Final = 1.0
"""Seconds of a step. All trainers step together, by the clock of the machine."""
SAMPLES: Final = 4
"""Samples of each rank in a step."""
START_S: Final = 0.5
"""Seconds, up to twice as many, from an assignment to the start of a script's trainers: they are forked and meet."""
_RAW: Final = RAW_SUBJECT.encode()
_WORLDS_AT_MOST: Final = 50
_ids: Final = itertools.count(os.getpid() << 40)
SLOTS: Final = 20
"""Number of moments over which heartbeats are spread evenly."""


@dataclass(slots=True)
class World:
    """An assignment, and how many workers of this process have received it."""

    generation: Generation
    places: Mapping[WorkerId, Member]
    own: int
    """Members that this process plays."""
    heard: int = 0
    last_s: float = 0.0
    """Time at which the last of them received it, on the monotonic clock."""


@dataclass(slots=True)
class Company:
    """State that the played workers of one process share."""

    sdk: bool
    began_s: float
    """Time of the first step, on the monotonic clock."""
    traffic: Traffic = field(default_factory=Traffic)
    workers: dict[WorkerId, "PlayedWorker"] = field(default_factory=dict)
    """Connected workers."""
    slots: list[dict["PlayedWorker", None]] = field(default_factory=lambda: [{} for _ in range(SLOTS)])
    """The same workers, by the moment of their heartbeats."""
    worlds: dict[JobName, dict[Generation, World]] = field(default_factory=dict)
    held: WorldCache = field(default_factory=WorldCache)
    begin_fetch: Callable[[JobName, WorldReference], None] = lambda job, world: None
    """Starts a fetch that ends with `fetched`."""
    fetching: dict[Digest, list[Callable[[Assignment], None]]] = field(default_factory=dict)
    """Callbacks that wait for a world."""
    sent: dict[bytes, Received] = field(default_factory=dict)
    """The newest heartbeat by subject, so that a controller in the same process need not decode it."""
    heartbeats: int = 0
    facts: int = 0
    raw_number: int = 0
    raw_heard: int = 0
    raw_last_s: float = 0.0
    rejected: int = 0
    _last: dict[bytes, tuple[bytes, Message | None]] = field(default_factory=dict)

    def take(self, worker: "PlayedWorker") -> None:
        self.workers[worker.status.worker] = worker
        min(self.slots, key=len)[worker] = None

    def forget(self, worker: "PlayedWorker") -> None:
        self.workers.pop(worker.status.worker, None)
        for slot in self.slots:
            slot.pop(worker, None)

    def decoded(self, subject: bytes, payload: bytes) -> Message | None:
        known = self._last.get(subject)
        if known is not None and known[0] == payload:
            return known[1]
        received = codec.decode(payload)
        message = None if isinstance(received, Rejected) else received.message
        self.rejected += message is None
        self._last[subject] = (payload, message)
        return message

    def want(self, job: JobName, world: WorldReference, then: Callable[[Assignment], None]) -> None:
        known = self.held.find(world)
        if known is not None:
            then(known)
            return
        if world.digest not in self.fetching:
            self.begin_fetch(job, world)
        self.fetching.setdefault(world.digest, []).append(then)

    def fetched(self, world: WorldReference, assignment: Assignment | None) -> None:
        """Calls the waiting callbacks; without an assignment the master sends the world again."""
        for then in self.fetching.pop(world.digest, []):
            if assignment is not None:
                then(assignment)

    def world_of(self, assignment: Assignment) -> World:
        worlds = self.worlds.setdefault(assignment.job, {})
        world = worlds.get(assignment.generation)
        if world is None:
            places = {member.worker: member for member in assignment.members}
            own = sum(worker in places for worker in self.workers)
            world = worlds[assignment.generation] = World(assignment.generation, places, own)
            while len(worlds) > _WORLDS_AT_MOST:
                del worlds[next(iter(worlds))]
        return world

    def hear_raw(self, payload: bytes, now_s: float) -> None:
        number = int(payload[:8])
        if number != self.raw_number:
            self.raw_number, self.raw_heard = number, 0
        self.raw_heard += 1
        self.raw_last_s = now_s

    def step(self, now_s: float) -> int:
        return max(0, int((now_s - self.began_s) / STEP_S))


class PlayedWorker:
    def __init__(
        self,
        company: Company,
        worker: WorkerId,
        cluster: ClusterName,
        region: str,
        job: JobName,
        pid: int,
        on_left: Callable[[], None],
    ) -> None:
        self.connection: Connection | None = None
        self.status = WorkerStatus(
            worker, cluster, job, 0, WorkerPhase.IDLE, region=region, zone=f"{region}-a", node=f"node-{worker}", pid=pid
        )
        self._company = company
        self._number = pid
        self._on_left = on_left
        self._world: World | None = None
        self._sender = f"worker/{worker}"
        self._heartbeat_subject = subjects.worker_heartbeat(cluster, worker).encode()
        self._progress_subject = subjects.worker_progress(cluster, worker).encode()
        self._reported = 0

    def subscriptions(self) -> tuple[str, ...]:
        job = self.status.job
        return (
            subjects.assignment(job),
            subjects.halt(job),
            subjects.locate(job),
            subjects.end_stalled(job),
            subjects.invite(job),
            subjects.release(job),
            subjects.worker_command(self.status.cluster, self.status.worker),
            subjects.worker_order(self.status.cluster, self.status.worker),
            RAW_SUBJECT,
        )

    def join(self) -> None:
        """Announces the worker, to its controller before the master."""
        self.beat()
        self._tell("joined", WorkerJoined(self._next_status()))

    def beat(self) -> None:
        if self._company.sdk and self.status.trainers and self.status.phase is WorkerPhase.READY:
            self.status = structs.replace(self.status, step=self._company.step(time.monotonic()))
        received = self._received(WorkerHeartbeat(self._next_status()))
        self._company.sent[self._heartbeat_subject] = received
        self._company.heartbeats += 1
        self._publish(self._heartbeat_subject, received.envelope)

    def report(self) -> None:
        """Reports the steps of an SDK trainer since the last report."""
        status, done = self.status, self._company.step(time.monotonic())
        if status.phase is not WorkerPhase.READY or not status.trainers or done <= self._reported:
            return
        trainer, now = status.trainers[0], time.time()
        measured = StepsMeasured(done, SAMPLES, STEP_S, STEP_S / 2, STEP_S / 4, 1_000_000, SAMPLES, STEP_S)
        progress = RankProgress(trainer.rank, done - 1, done - 1, 1.0, SAMPLES, now, now, measured)
        self._reported = done
        message = Progress(status.job, status.worker, status.generation, (progress,))
        self._publish(self._progress_subject, self._received(message).envelope)

    def hear(self, subject: bytes, payload: bytes) -> None:
        now_s = time.monotonic()
        if subject == _RAW:
            self._company.hear_raw(payload, now_s)
            return
        match self._company.decoded(subject, payload):
            case (Assignment() | AssignmentDelta() | StoredAssignment()) as message:
                self._assign(message, now_s)
            case Halt(_, generation):
                self._park(generation)
            case Invite(_, workers, world, _, terms) if self.status.worker in workers:
                self._warm(world, terms)
            case StoredInvite(job, workers, stored, _, terms) if self.status.worker in workers:
                self._company.want(job, stored, lambda world: self._warm(world, terms))
            case Release(_, workers, why, _, everybody) if everybody or self.status.worker in workers:
                self._leave(why)
            case Locate(_, _, number):
                self._locate(number)
            case StopWorker(why):
                self._leave(why)
            case EndStalled() | _:
                pass

    def lose(self) -> None:
        if self.connection is not None:
            self.connection.abort()

    def _assign(self, message: Assignment | AssignmentDelta | StoredAssignment, now_s: float) -> None:
        assignment = self._company.held.hear(message)
        if assignment is not None:
            self._enter(assignment, now_s)
        elif not isinstance(message, Assignment):
            self._company.want(message.job, message.world, lambda world: self._enter(world, time.monotonic()))

    def _enter(self, assignment: Assignment, now_s: float) -> None:
        world = self._company.world_of(assignment)
        if self._world is world or assignment.generation < self.status.generation:
            return
        self._world = world
        self.status = structs.replace(self.status, assigned=assignment.generation)
        place = world.places.get(self.status.worker)
        if place is None:
            self._stand(WorkerPhase.IDLE, assignment.generation, ())
            self._tell("parked", WorkerParked(self._next_status()))
            return
        world.heard += 1
        world.last_s = now_s
        if not self._company.sdk:
            loop = asyncio.get_running_loop()
            loop.call_later(START_S * (1 + self._number % 100 / 100), self._run, assignment.generation)
            return
        done, parked = self._company.step(now_s), self.status.trainers[0].parked if self.status.trainers else 0
        trainer = TrainerStatus(0, place.first_rank, assignment.generation, Generation(parked), done, active=True)
        self._stand(WorkerPhase.READY, assignment.generation, (trainer,))
        self._tell("switched", WorkerSwitched(self._next_status(), done))

    def _run(self, generation: Generation) -> None:
        """Reports that the trainers run, unless a newer world has replaced theirs."""
        if self.status.assigned == generation >= self.status.generation:
            self._stand(WorkerPhase.READY, generation, ())
            self._tell("ready", WorkerReady(self._next_status()))

    def _park(self, generation: Generation) -> None:
        if generation <= self.status.generation:
            return
        self._keep_pace()
        trainers = tuple(
            structs.replace(each, parked=generation, held=((each.rank * SAMPLES, (each.rank + 1) * SAMPLES),))
            for each in self.status.trainers
        )
        self._stand(WorkerPhase.PARKED, generation, trainers)
        self._tell("parked", WorkerParked(self._next_status()))

    def _warm(self, world: Assignment, terms: str) -> None:
        if self._company.sdk and not self.status.trainers:
            trainer = TrainerStatus(0, Rank(world.world_size), terms=terms)
            self._stand(WorkerPhase.IDLE, self.status.generation, (trainer,))
            self._tell("ready", WorkerReady(self._next_status()))

    def _locate(self, number: int) -> None:
        located = tuple(structs.replace(trainer, located=number) for trainer in self.status.trainers)
        self.status = structs.replace(self.status, trainers=located)
        self._tell("position", WorkerPosition(self._next_status()))

    def _leave(self, why: str) -> None:
        if self.status.phase is not WorkerPhase.LEAVING:
            self._stand(WorkerPhase.LEAVING, self.status.generation, ())
            self._tell("left", WorkerLeft(self._next_status(), f"{PLAYED}{why}"))
            self._on_left()

    def _stand(self, phase: WorkerPhase, generation: Generation, trainers: tuple[TrainerStatus, ...]) -> None:
        self.status = structs.replace(self.status, phase=phase, generation=generation, trainers=trainers)

    def _keep_pace(self) -> None:
        """Updates the step of trainers that compute; parked trainers and those outside of a world do not."""
        if self.status.phase is WorkerPhase.READY and self.status.trainers:
            done = self._company.step(time.monotonic())
            trainers = tuple(structs.replace(trainer, done=done) for trainer in self.status.trainers)
            self.status = structs.replace(self.status, step=done, trainers=trainers)

    def _next_status(self) -> WorkerStatus:
        self.status = structs.replace(self.status, seq=self.status.seq + 1)
        return self.status

    def _received(self, message: Message) -> Received:
        # An id from the operating system's randomness costs as much as the rest of a heartbeat.
        return Received(message, codec.wrap(message, sender=self._sender, message_id=f"{next(_ids):020x}"))

    def _tell(self, fact: str, message: Message) -> None:
        self._company.facts += 1
        subject = subjects.worker_fact(self.status.cluster, self.status.worker, fact).encode()
        self._publish(subject, self._received(message).envelope)

    def _publish(self, subject: bytes, envelope: Envelope) -> None:
        if self.connection is not None:
            self.connection.publish(subject, codec.encode(envelope))
