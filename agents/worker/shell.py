"""The hands of the worker-agent: the bus, the host, the log lines, the progress reports."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import assert_never

from agents.worker import checkpoints, invariants
from agents.worker.effects import (
    AbortTrainer,
    FlushProgress,
    ForkTrainers,
    Leave,
    LookAtTrainers,
    SendHeartbeat,
    StartHost,
    StopTrainers,
    TellFact,
    TellNotice,
    TellTrainer,
    WorkerEffect,
)
from agents.worker.environment import AN_INVITED, enlarged
from agents.worker.events import (
    AssignmentHeard,
    BusBack,
    EndStalledHeard,
    HaltHeard,
    InviteHeard,
    LocateHeard,
    ReleaseHeard,
    StopAsked,
    TrainersSeen,
    WorkerEvent,
)
from agents.worker.external_host import HostContainer
from agents.worker.host import HostCommand
from agents.worker.host_runner import HostRunner
from agents.worker.leftovers import WorkerFolder
from agents.worker.listener import Listener
from agents.worker.outbox import LogOutbox
from agents.worker.progress import REPORT_EVERY_S, ProgressBook
from agents.worker.state import WorkerIdentity, WorkerState, own_place
from agents.worker.stored import read_world
from agents.worker.terminal import Echo
from agents.worker.translation import fact_message, order_of
from messages import subjects
from messages.clusters import Answer
from messages.codec import Received
from messages.envelope import Message
from messages.workers import (
    StopWorker,
    WorkerHeartbeat,
    WorkerNoticed,
    WorkerStatus,
)
from messages.worlds import Assignment, EndStalled, Halt, Invite, Locate, Release
from runtime import causes
from runtime.bus import Bucket, Bus
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.errors import BusUnavailable
from runtime.inbox import Inbox
from runtime.logs import WhyLog, logger
from runtime.retry import Backoff
from tradewind.protocol.variables import TERMS

MISADDRESSED = "misaddressed"
LOG_AFTER_S = 0.005
READ_AGAIN_FIRST_S = 0.2
READ_AGAIN_MOST_S = 5.0


@dataclass(frozen=True, slots=True)
class Hands:
    """What the agent holds for life."""

    identity: WorkerIdentity
    bus: Bus
    bucket: Bucket
    folder: WorkerFolder
    command: HostCommand | HostContainer
    inbox: Inbox[WorkerEvent]
    socket: Path
    """Where trainers attach."""
    echo: Echo | None = None


class WorkerShell:
    def __init__(self, hands: Hands, tasks: asyncio.TaskGroup, clock: Clock) -> None:
        identity, bus = hands.identity, hands.bus
        self.left: asyncio.Future[Leave] = asyncio.get_running_loop().create_future()
        self.outbox = LogOutbox(
            identity.job,
            identity.worker,
            lambda subject, lines, message_id: bus.publish_durable(subject, lines, message_id=message_id),
        )
        self._identity = identity
        self._bus = bus
        self._bucket = hands.bucket
        self._inbox = hands.inbox
        self._tasks = tasks
        self._clock = clock
        self._progress = ProgressBook(identity.job, identity.worker)
        listener = Listener(hands.inbox.post, self.outbox, self._progress, hands.echo, clock)
        self.trainers = listener.trainers
        self.host = HostRunner(hands.command, hands.folder, listener.hear_host, hands.inbox.post, clock)
        self._state: WorkerState | None = None
        self._log = logger(worker=identity.worker)
        self._log_why = WhyLog(self._log, "waits_for")
        self._to_log: list[Callable[[], None]] = []
        self._reconnected = asyncio.Event()

    async def listen(self) -> None:
        job, worker, cluster = self._identity.job, self._identity.worker, self._identity.cluster
        await self._bus.subscribe(subjects.assignment(job), self._on_message)
        await self._bus.subscribe(subjects.halt(job), self._on_message)
        await self._bus.subscribe(subjects.locate(job), self._on_message)
        await self._bus.subscribe(subjects.end_stalled(job), self._on_message)
        await self._bus.subscribe(subjects.invite(job), self._on_message)
        await self._bus.subscribe(subjects.release(job), self._on_message)
        await self._bus.serve(subjects.worker_command(cluster, worker), self._on_command)

    def perform(self, effect: WorkerEffect) -> Awaitable[WorkerEvent | None] | None:
        match effect:
            case StartHost():
                with causes.caused_by(None):  # a host lives longer than what asked for it
                    self._tasks.create_task(self.host.run(), name="host")
            case ForkTrainers(world, invited=True, terms=terms):
                self.host.fork(*enlarged(world, self._identity), {**AN_INVITED, TERMS: terms})
            case ForkTrainers(assignment):
                self.host.fork(assignment, own_place(self._identity.worker, assignment), {})
            case StopTrainers(generation, grace_s):
                return self.host.stop(generation, grace_s)
            case TellTrainer(generation, rank, command):
                self.trainers.tell((generation, rank), order_of(command, self._identity.address))
            case LookAtTrainers():
                self._inbox.post(TrainersSeen(self._clock.monotonic_s(), self.trainers.running()))
            case AbortTrainer(generation, rank, why):
                self.host.abort(generation, rank, why)
            case TellFact(fact):
                self._publish_own(fact, fact_message(effect))
                self._log_soon(partial(self._log_told, fact, effect.status))
            case TellNotice(remaining_s, source):
                identity = self._identity
                self._publish_own("notice", WorkerNoticed(identity.worker, identity.job, remaining_s, source))
            case SendHeartbeat(status):
                subject = subjects.worker_heartbeat(self._identity.cluster, self._identity.worker)
                self._bus.publish(subject, WorkerHeartbeat(status))
            case FlushProgress():
                self.flush_progress()
            case Leave(code, why):
                self._log_now()
                self._log.info("leaves", code=code, why=why)
                self.left.set_result(effect)
            case _:
                assert_never(effect)
        return None

    def on_decision(self, event: WorkerEvent, decision: Decision[WorkerState, WorkerEffect]) -> None:
        before, self._state = self._state or decision.state, decision.state
        for broken in invariants.check(before, decision.state):
            self._log.error("invariant_broken", what=broken, after=str(event))
        if isinstance(event, BusBack):
            self._reconnected.set()
        state = decision.state
        self._log_soon(lambda: self._log_why(decision.why, phase=state.phase, generation=state.generation))

    def flush_progress(self) -> None:
        for progress in self._progress.take():
            self._bus.publish(subjects.progress(self._identity.job), progress)

    async def report_progress(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.flush_progress()

    async def watch_checkpoints(self) -> None:
        await checkpoints.watch(lambda: self._state, self._inbox.post, self._clock)

    async def keep_reading(self) -> None:
        """Whoever comes late or was away hears the last assignment as if it had just been sent."""
        while True:
            await self._read_stored_world()
            await self._reconnected.wait()
            self._reconnected.clear()

    async def _read_stored_world(self) -> None:
        backoff = Backoff(READ_AGAIN_FIRST_S, READ_AGAIN_MOST_S)
        while True:
            try:
                for heard in await read_world(self._bucket, self._identity.job, self._clock):
                    self._inbox.post(heard)
            except BusUnavailable as error:
                self._log.info("stored_world_not_read", why=str(error))
                await backoff.wait()
            else:
                return

    def dropped(self) -> dict[str, int]:
        """Messages and log lines that were dropped so far, by reason."""
        lines = {"log_lines_dropped": self.outbox.dropped_lines} if self.outbox.dropped_lines else {}
        return {**lines, **self.trainers.dropped, **self._bus.dropped}

    def _on_message(self, subject: str, received: Received) -> None:
        at_s, epoch = self._clock.monotonic_s(), received.envelope.epoch
        job = self._identity.job
        match received.message:
            case Assignment() as assignment if subject == subjects.assignment(job):
                self._inbox.post(AssignmentHeard(at_s, assignment, epoch))
            case Halt() as halt if subject == subjects.halt(job):
                self._inbox.post(HaltHeard(at_s, halt, epoch))
            case Locate() as locate if subject == subjects.locate(job):
                self._inbox.post(LocateHeard(at_s, locate, epoch))
            case EndStalled() as order if subject == subjects.end_stalled(job):
                self._inbox.post(EndStalledHeard(at_s, order, epoch))
            case Invite() as invite if subject == subjects.invite(job):
                self._inbox.post(InviteHeard(at_s, invite, epoch))
            case Release() as release if subject == subjects.release(job):
                self._inbox.post(ReleaseHeard(at_s, release, epoch))
            case _:
                self._bus.dropped[MISADDRESSED] += 1

    async def _on_command(self, _subject: str, received: Received) -> Message:
        match received.message:
            case StopWorker(why, grace_s):
                self._inbox.post(StopAsked(self._clock.monotonic_s(), why, grace_s))
                return Answer(ok=True)
            case _:
                return Answer(ok=False, why=f"{received.envelope.kind} is no command for a worker")

    def _log_soon(self, log: Callable[[], None]) -> None:
        """Whoever waits for what was just published does not wait for a line on standard error."""
        if not self._to_log:
            asyncio.get_running_loop().call_later(LOG_AFTER_S, self._log_now)
        self._to_log.append(log)

    def _log_now(self) -> None:
        logs, self._to_log = self._to_log, []
        for log in logs:
            log()

    def _log_told(self, fact: str, status: WorkerStatus) -> None:
        self._log.info("told", fact=fact, generation=status.generation, phase=status.phase)

    def _publish_own(self, fact: str, message: Message) -> None:
        self._bus.publish(subjects.worker_fact(self._identity.cluster, self._identity.worker, fact), message)
