"""Messages of the bus for a worker-agent, as events of the core: commands of the master, and the stored world."""

import asyncio
from collections.abc import Callable

from agents.worker.events import (
    AssignmentHeard,
    EndStalledHeard,
    HaltHeard,
    InviteHeard,
    LocateHeard,
    ReleaseHeard,
    StopAsked,
    WorkerEvent,
)
from agents.worker.fetching import WorldFetcher
from agents.worker.state import WorkerIdentity
from agents.worker.stored import read_world
from agents.worker.worlds import WorldCache
from messages import subjects
from messages.clusters import Answer
from messages.codec import Received
from messages.compact_worlds import StoredAssignment, StoredInvite
from messages.envelope import Message
from messages.ids import Epoch
from messages.workers import StopWorker
from messages.world_deltas import AssignmentDelta
from messages.worlds import Assignment, EndStalled, Halt, Invite, Locate, Release
from runtime.bus import MISADDRESSED, Bucket, Bus
from runtime.clock import Clock
from runtime.errors import BusUnavailable
from runtime.logs import logger
from runtime.retry import Backoff

READ_AGAIN_FIRST_S = 0.2
READ_AGAIN_MOST_S = 5.0


class Incoming:
    def __init__(
        self, identity: WorkerIdentity, bus: Bus, bucket: Bucket, post: Callable[[WorkerEvent], None], clock: Clock
    ) -> None:
        self._identity = identity
        self._bus = bus
        self._bucket = bucket
        self._post = post
        self._clock = clock
        self._reconnected = asyncio.Event()
        self._worlds = WorldCache()
        self.fetcher = WorldFetcher(bucket, identity.job, self._worlds, post, self.read_again)
        self._log = logger(worker=identity.worker)

    async def subscribe(self) -> None:
        job, worker, cluster = self._identity.job, self._identity.worker, self._identity.cluster
        await self._bus.subscribe(subjects.assignment(job), self._on_message)
        await self._bus.subscribe(subjects.halt(job), self._on_message)
        await self._bus.subscribe(subjects.locate(job), self._on_message)
        await self._bus.subscribe(subjects.end_stalled(job), self._on_message)
        await self._bus.subscribe(subjects.invite(job), self._on_message)
        await self._bus.subscribe(subjects.release(job), self._on_message)
        await self._bus.subscribe(subjects.worker_order(cluster, worker), self._on_message)
        await self._bus.serve(subjects.worker_command(cluster, worker), self._on_command)

    def read_again(self) -> None:
        """Requests another read of the stored world, because messages may be lost."""
        self._reconnected.set()

    async def keep_reading(self) -> None:
        """Posts the stored assignment as if it had just been sent, at the start and after each reconnection."""
        while True:
            await self._read_stored_world()
            await self._reconnected.wait()
            self._reconnected.clear()

    async def _read_stored_world(self) -> None:
        backoff = Backoff(READ_AGAIN_FIRST_S, READ_AGAIN_MOST_S)
        while True:
            try:
                for heard in await read_world(self._bucket, self._identity.job, self._clock, self._worlds):
                    self._post(heard)
            except BusUnavailable as error:
                self._log.info("stored_world_not_read", why=str(error))
                await backoff.wait()
            else:
                return

    def _on_message(self, subject: str, received: Received) -> None:
        at_s, epoch = self._clock.monotonic_s(), received.envelope.epoch
        job = self._identity.job
        own = subjects.worker_order(self._identity.cluster, self._identity.worker)
        match received.message:
            case (Assignment() | AssignmentDelta() | StoredAssignment()) as message if subject in (
                subjects.assignment(job),
                own,
            ):
                self._on_assignment(message, epoch, at_once=subject == own)
            case Halt() as halt if subject in (subjects.halt(job), own):
                self._post(HaltHeard(at_s, halt, epoch))
            case Locate() as locate if subject == subjects.locate(job):
                self._post(LocateHeard(at_s, locate, epoch))
            case EndStalled() as order if subject == subjects.end_stalled(job):
                self._post(EndStalledHeard(at_s, order, epoch))
            case Invite() as invite if subject == subjects.invite(job):
                self._post(InviteHeard(at_s, invite, epoch))
            case StoredInvite() as invite if subject == subjects.invite(job):
                self._on_stored_invite(invite, epoch)
            case Release() as release if subject == subjects.release(job):
                self._post(ReleaseHeard(at_s, release, epoch))
            case _:
                self._bus.dropped[MISADDRESSED] += 1

    def _on_assignment(
        self, message: Assignment | AssignmentDelta | StoredAssignment, epoch: Epoch | None, *, at_once: bool
    ) -> None:
        def heard(assignment: Assignment) -> WorkerEvent:
            return AssignmentHeard(self._clock.monotonic_s(), assignment, epoch)

        if message.job != self._identity.job:
            return
        assignment = self._worlds.hear(message)
        if assignment is not None:
            self._post(heard(assignment))
        elif not isinstance(message, Assignment):
            self.fetcher.want("assignment", message.world, heard, at_once=at_once)

    def _on_stored_invite(self, invite: StoredInvite, epoch: Epoch | None) -> None:
        if invite.job != self._identity.job or self._identity.worker not in invite.workers:
            return

        def heard(world: Assignment) -> WorkerEvent:
            sent = Invite(invite.job, invite.workers, world, invite.why, invite.terms)
            return InviteHeard(self._clock.monotonic_s(), sent, epoch)

        self.fetcher.want("invite", invite.world, heard, at_once=False)

    async def _on_command(self, _subject: str, received: Received) -> Message:
        match received.message:
            case StopWorker(why, grace_s):
                self._post(StopAsked(self._clock.monotonic_s(), why, grace_s))
                return Answer(ok=True)
            case _:
                return Answer(ok=False, why=f"{received.envelope.kind} is not a command for a worker")
