"""Performs the effects of one job's core."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from controlplane.capacity.interface import JobCapacity
from controlplane.job import effects, events
from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent
from controlplane.jobs.context import TermContext
from controlplane.jobs.records import (
    OnConflict,
    RecordUnreadable,
    StoredRecord,
    on_conflict,
    read_record,
)
from controlplane.jobs.worlds import JobWorlds, WorldLimits
from controlplane.stores.servers import StoreServers, StoreUnavailable
from messages import subjects
from messages.clusters import Answer
from messages.decoding import NotStorable
from messages.events import Event
from messages.ids import ClusterName, Generation, JobName, WorkerId
from messages.records import Record
from messages.worlds import Assignment, EndStalled, Halt, Invite, JobCommand, Locate, Release
from runtime.errors import BusUnavailable, Conflict, NoAnswer
from runtime.logs import Once, WhyLog, logger
from runtime.stored_worlds import write_chunks

COMMAND_TIMEOUT_S = 2.0
SAVE_TRIES = 3


@dataclass(frozen=True, slots=True)
class ShellTools:
    """Tools that the shells of all jobs share beside the term's context."""

    stores: StoreServers
    capacity: JobCapacity


class JobShell:
    def __init__(
        self,
        job: JobName,
        context: TermContext,
        tools: ShellTools,
        adopted: StoredRecord | None,
        on_overwritten: Callable[[], None],
        limits: WorldLimits | None = None,
    ) -> None:
        """`adopted` is the stored record; None for a new job."""
        self._job = job
        self._context = context
        self._tools = tools
        self._revision = adopted.revision if adopted is not None else 0
        """Revision of the record that this master last read or wrote; 0 if there is none."""
        self.worlds = JobWorlds(job, context.leadership.epoch, limits or WorldLimits())
        if adopted is not None:
            self.worlds.adopt(adopted.record, adopted.worlds)
        self._on_overwritten = on_overwritten
        self._unanswered = WhyLog(logger(job=job), "cluster_command_failed")
        self._log_once = Once()
        self._unsaved = WhyLog(logger(job=job), "record_not_saved")

    def perform(self, effect: JobEffect) -> Awaitable[JobEvent | None] | None:
        match effect:
            case effects.SaveRecord(record):
                return self._save(record)
            case effects.StartStore(generation):
                return self._start_store(generation)
            case effects.StopStores():
                self._tools.stores.stop(self._job)
            case effects.WatchStore(generation, world_size, meet_s):
                self._tools.stores.watch(self._job, generation, world_size, meet_s)
            case effects.Publish(message, to):
                self._publish(message, to)
            case effects.TellCluster():
                return self._tell_cluster(effect)
            case effects.WantNodes(want):
                self._tools.capacity.want(self._job, want)
            case effects.Announce(kind, text, why, fields):
                self._context.announce(Event(self._job, kind, text, why, fields))
            case _:
                assert_never(effect)
        return None

    async def _save(self, record: Record) -> JobEvent:
        answer = await self._try_to_save(record)
        if isinstance(answer, events.SaveFailed):
            self._unsaved(answer.why)
        return answer

    async def _try_to_save(self, record: Record) -> events.RecordSaved | events.SaveFailed:
        try:
            for _ in range(SAVE_TRIES):
                if not self._context.may_act():
                    return events.SaveFailed(self._now_s(), "this master no longer leads")
                try:
                    await self._write(record)
                    return events.RecordSaved(self._now_s(), record)
                except Conflict:
                    why = await self._resolve_conflict()
                    if why is not None:
                        return events.SaveFailed(self._now_s(), why)
        except BusUnavailable as error:
            return events.SaveFailed(self._now_s(), str(error))
        except NotStorable as error:
            if self._log_once(str(error)):
                logger(job=self._job).error("record_unreadable", error=str(error), stays="the previous record")
            return events.SaveFailed(self._now_s(), str(error))
        return events.SaveFailed(self._now_s(), "the record changes faster than it can be written")

    async def _write(self, record: Record) -> None:
        """Writes the chunks, then the record that names them. Raises `Conflict` and `BusUnavailable`."""
        bucket = self._context.bucket
        layout = self.worlds.layout(record)
        await write_chunks(bucket, layout.chunks)
        self._revision = await bucket.update(subjects.record_key(self._job), layout.value, self._revision)
        if self.worlds.saved(record, layout.worlds):
            await self._remove_old_chunks()

    async def _remove_old_chunks(self) -> None:
        bucket = self._context.bucket
        try:
            for key in self.worlds.old_chunks(await bucket.revisions(subjects.world_chunks(self._job))):
                await bucket.delete(key)
            self.worlds.removed_old_chunks()
        except BusUnavailable as error:
            logger(job=self._job).info("old_worlds_not_removed", why=str(error))

    def _publish(self, message: JobCommand, to: tuple[tuple[ClusterName, WorkerId], ...]) -> None:
        bus, epoch = self._context.bus, self._context.leadership.epoch
        if not to:
            bus.publish(_subject_of(message), self.worlds.message_to_all(message), epoch=epoch)
            return
        sent = self.worlds.message_to_one(message)
        for cluster, worker in to:
            bus.publish(subjects.worker_order(cluster, worker), sent, epoch=epoch)

    async def _resolve_conflict(self) -> str | None:
        """Why the record may not be overwritten; None if it may."""
        try:
            stored = await read_record(self._context.bucket, self._job)
        except RecordUnreadable as error:
            self._revision = error.revision
            return None
        record, revision = (stored.record, stored.revision) if stored is not None else (None, 0)
        answer = on_conflict(record, self._context.leadership.epoch)
        match answer:
            case OnConflict.WRITE_OVER:
                self._revision = revision
                return None
            case OnConflict.READ_AGAIN:
                self._on_overwritten()
                return "the previous master wrote it after this one had read it"
            case OnConflict.YIELD:
                return "a newer master wrote it"
            case _:
                assert_never(answer)

    async def _start_store(self, generation: Generation) -> JobEvent:
        try:
            address = await self._tools.stores.start(self._job, generation)
        except StoreUnavailable as error:
            logger(job=self._job).warning("store_not_started", generation=generation, why=str(error))
            return events.StoreFailed(self._now_s(), generation, str(error))
        return events.StoreStarted(self._now_s(), generation, address)

    async def _tell_cluster(self, effect: effects.TellCluster) -> JobEvent | None:
        """Sends a command. The answer shows only a refusal; the cluster's reports show the result."""
        try:
            reply = await self._context.bus.request(
                subjects.cluster_command(effect.cluster),
                effect.command,
                COMMAND_TIMEOUT_S,
                epoch=self._context.leadership.epoch,
            )
        except (NoAnswer, BusUnavailable) as error:
            self._unanswered(str(error), cluster=effect.cluster)
            return None
        refusal = "" if not isinstance(reply.message, Answer) or reply.message.ok else reply.message.why
        return events.ClusterAnswered(self._now_s(), effect.cluster, refusal)

    def _now_s(self) -> float:
        return self._context.now_s()


def _subject_of(message: JobCommand) -> str:
    match message:
        case Assignment(job=job):
            return subjects.assignment(job)
        case Halt(job=job):
            return subjects.halt(job)
        case Invite(job=job):
            return subjects.invite(job)
        case Locate(job=job):
            return subjects.locate(job)
        case EndStalled(job=job):
            return subjects.end_stalled(job)
        case Release(job=job):
            return subjects.release(job)
        case _:
            assert_never(message)
