"""The hands of one job's core: performs what it asks for. Decides nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from controlplane.capacity.interface import JobCapacity
from controlplane.job import effects, events
from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent
from controlplane.jobs.cluster_counts import WantedBook
from controlplane.jobs.context import TermContext
from controlplane.jobs.records import OnConflict, RecordUnreadable, on_conflict, read_world
from controlplane.stores.servers import StoreServers, StoreUnavailable
from messages import subjects
from messages.clusters import Answer, KeepWorkers
from messages.decoding import Unreadable
from messages.events import Event
from messages.ids import Generation, JobName
from messages.records import Record, encode_record
from messages.worlds import Assignment, EndStalled, Halt, Invite, JobCommand, Locate, Release
from runtime.errors import BusUnavailable, Conflict, NoAnswer
from runtime.logs import Once, WhyLog, logger

COMMAND_TIMEOUT_S = 2.0
SAVE_TRIES = 3


@dataclass(frozen=True, slots=True)
class ShellTools:
    """What the shells of all jobs share beside the term's context."""

    stores: StoreServers
    wanted: WantedBook
    capacity: JobCapacity


class JobShell:
    def __init__(
        self,
        job: JobName,
        context: TermContext,
        tools: ShellTools,
        revision: int,
        on_overwritten: Callable[[], None],
    ) -> None:
        self._job = job
        self._context = context
        self._tools = tools
        self._revision = revision
        """Of the record as this master last read or wrote it; 0 if there is none."""
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
            case effects.Publish(message):
                self._context.bus.publish(_subject_of(message), message, epoch=self._context.leadership.epoch)
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
                    return events.SaveFailed(self._now_s(), "this master does not lead any more")
                try:
                    key = subjects.world_key(self._job)
                    self._revision = await self._context.bucket.update(key, encode_record(record), self._revision)
                    return events.RecordSaved(self._now_s(), record)
                except Conflict:
                    why = await self._resolve_conflict()
                    if why is not None:
                        return events.SaveFailed(self._now_s(), why)
        except BusUnavailable as error:
            return events.SaveFailed(self._now_s(), str(error))
        except Unreadable as error:
            if self._log_once(str(error)):
                logger(job=self._job).error("record_unreadable", error=str(error), stays="the one before")
            return events.SaveFailed(self._now_s(), str(error))
        return events.SaveFailed(self._now_s(), "the record changes faster than it can be written")

    async def _resolve_conflict(self) -> str | None:
        """Why the record may not be written over; None where it may."""
        try:
            stored = await read_world(self._context.bucket, self._job)
        except RecordUnreadable as error:
            self._revision = error.revision
            return None
        record, revision = (stored.record, stored.revision) if stored is not None else (None, 0)
        answer = on_conflict(record, self._context.leadership.epoch)
        match answer:
            case OnConflict.WRITE_OVER:
                self._revision = revision
                return None
            case OnConflict.ADOPT:
                self._on_overwritten()
                return "the master before this one wrote it after it was read"
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
        """Whether it was done is learned from the cluster's topology; why it was not, from its answer."""
        command = effect.command
        if isinstance(command, KeepWorkers):
            self._tools.wanted.note(effect.cluster, self._job, command.count)
        try:
            reply = await self._context.bus.request(
                subjects.cluster_command(effect.cluster),
                command,
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
