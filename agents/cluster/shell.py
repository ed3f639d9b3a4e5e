"""The shell of the cluster-controller: bus, record in KV, and places."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Sequence
from typing import Protocol, assert_never

from agents.cluster.effects import ClusterEffect, EndPlace, SaveKnown, SendTopology, StartPlace, TellNotice
from agents.cluster.events import (
    ClusterEvent,
    KeepAsked,
    KnownLost,
    KnownSaved,
    LeaderSeen,
    RemoveAsked,
    SaveFailed,
    WholeAsked,
    WorkerHeard,
    WorkerSaidLeft,
)
from agents.cluster.progress import GATHER_S, ProgressGatherer
from agents.cluster.reports import split
from agents.cluster.state import WHY_AT_MOST, ClusterState, Known, is_at_rest, uid_of
from messages import subjects
from messages.clusters import Answer, KeepWorkers, RemoveWorkers, ReportWhole, WorkerTemplate
from messages.codec import Received
from messages.decoding import NotStorable, Undecodable, decode, encode_readable
from messages.ids import ClusterName, Epoch, JobName, is_name
from messages.workers import StopWorker, WorkerHeartbeat, WorkerLeft, WorkerNoticed, WorkerStatus
from messages.worlds import Progress
from runtime import causes
from runtime.bus import MISADDRESSED, Bucket, Bus, Entry
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.errors import BusRefused, BusUnavailable, Conflict, NoAnswer, UserError
from runtime.inbox import Inbox
from runtime.logs import Once, WhyLog, logger

ANSWER_WITHIN_S = 5.0
GUARD_S = 5.0
"""Seconds between two checks that the saved record exists."""
ANOTHER_ANSWERS_WITHIN_S = 1.0
REFUSED = "refused"


class Places(Protocol):
    """Starts and ends places. Posts PlaceStarted, PlaceFailed and PlaceEnded by itself."""

    def __contains__(self, uid: str) -> bool: ...

    def start(self, uid: str, job: JobName, template: WorkerTemplate, departing: frozenset[str]) -> None: ...

    def recognise(self, uid: str, pid: int) -> bool:
        """Takes over an unknown worker that belongs to a place here. Returns False if it does not."""

    async def end(self, uid: str, grace_s: float) -> None: ...


class NotSaved(Exception):
    """Raised when the record was not saved and the save can be retried."""


class KnownRecord:
    """The controller's record in KV. Its key has one writer: the last writer is the controller."""

    def __init__(self, bucket: Bucket, cluster: ClusterName, incarnation: str) -> None:
        self._bucket = bucket
        self._cluster = cluster
        self._key = subjects.known_key(cluster)
        self._incarnation = incarnation
        self._revision = 0

    async def load(self) -> Known | None:
        entry = await self._bucket.get(self._key)
        if entry is None:
            return None
        self._revision = entry.revision
        return self._decoded(entry.value)

    async def is_lost(self) -> bool:
        """True if the record existed and is gone. Raises `BusUnavailable`."""
        return self._revision > 0 and await self._bucket.get(self._key) is None

    async def save(self, known: Known) -> None:
        """Saves the record. Raises `NotSaved`, or `UserError` if another controller has taken over."""
        try:
            value = encode_readable(known, Known, sort_keys=True)
            self._revision = await self._bucket.update(self._key, value, self._revision)
        except Conflict:
            await self._check_last_writer()
            raise NotSaved("an earlier save was written, but its acknowledgement was lost") from None
        except (BusUnavailable, BusRefused, NotStorable) as error:
            raise NotSaved(str(error)) from error

    async def _check_last_writer(self) -> None:
        try:
            entry = await self._bucket.get(self._key)
        except BusUnavailable as error:
            raise NotSaved(str(error)) from error
        if entry is None:
            self._revision = 0
            return
        known = self._decoded(entry.value)
        if known is not None and known.incarnation != self._incarnation:
            raise taken_over(self._cluster)
        self._revision = entry.revision

    def _decoded(self, value: bytes) -> Known | None:
        try:
            return decode(value, Known)
        except Undecodable as error:
            logger(cluster=self._cluster).warning("known_unreadable", key=self._key, why=str(error))
            return None


class ClusterShell:
    def __init__(
        self,
        cluster: ClusterName,
        bus: Bus,
        record: KnownRecord,
        places: Places,
        inbox: Inbox[ClusterEvent],
        clock: Clock,
    ) -> None:
        self.at_rest = asyncio.Event()
        """Set once, when the core is at rest after a request to stop."""
        self._cluster = cluster
        self._bus = bus
        self._record = record
        self._places = places
        self._inbox = inbox
        self._clock = clock
        self._request_ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._progress = ProgressGatherer(cluster)
        self._log_once = Once()
        self._strangers = Once(limit=10_000)
        self._log = logger(cluster=cluster)
        self._log_why = WhyLog(self._log, "decided")
        self._log_whole = WhyLog(self._log, "whole_state_asked")

    async def listen(self) -> None:
        await self._bus.subscribe(subjects.worker_heartbeat(self._cluster), self._on_heartbeat)
        await self._bus.subscribe(subjects.worker_fact(self._cluster, None, "left"), self._on_left)
        await self._bus.subscribe(subjects.worker_progress(self._cluster), self._on_progress)
        bucket = await self._bus.bucket(subjects.STATE_BUCKET)
        await bucket.watch(subjects.LEADER_KEY, self._on_leader)
        await self._bus.serve(subjects.cluster_command(self._cluster), self._on_command)

    def perform(self, effect: ClusterEffect) -> Awaitable[ClusterEvent | None] | None:
        match effect:
            case StartPlace(uid, job, template, departing):
                with causes.caused_by(None):  # a place outlives the command that requested it
                    self._places.start(uid, job, template, departing)
            case EndPlace(uid, grace_s, why, worker):
                self._log.info("place_ends", uid=uid, why=why)
                if worker is None:
                    return self._end(uid, grace_s)
                self._bus.publish(subjects.worker_command(self._cluster, worker), StopWorker(why, grace_s))
            case TellNotice(worker, job, remaining_s, source):
                self._log.info("notice_sent", worker=worker, remaining_s=remaining_s, source=source)
                noticed = WorkerNoticed(worker, job, remaining_s, source)
                self._bus.publish(subjects.worker_fact(self._cluster, worker, "notice"), noticed)
            case SendTopology(heartbeat):
                for part in split(heartbeat):
                    self._bus.publish(subjects.cluster_heartbeat(self._cluster), part)
            case SaveKnown(known):
                return self._save(known)
            case _:
                assert_never(effect)
        return None

    def on_decision(self, _events: Sequence[ClusterEvent], decision: Decision[ClusterState, ClusterEffect]) -> None:
        self._log_why(decision.why)
        state = decision.state
        if state.doubts and self._log_once("doubts"):
            self._log.warning("heartbeat_ignored", why="its numbers are impossible; later ones are not logged")
        for ask, answer in state.answers.items():
            asked = self._answers.get(ask)
            if asked is not None and not asked.done():
                asked.set_result(answer)
        if is_at_rest(state):
            self.at_rest.set()

    async def report_progress(self) -> None:
        """Sends the gathered progress of workers, until cancelled."""
        try:
            while True:
                await asyncio.sleep(GATHER_S)
                self._send_progress()
        finally:
            self._send_progress()

    def _send_progress(self) -> None:
        for gathered in self._progress.take():
            self._bus.publish(subjects.progress(gathered.job), gathered)

    async def guard_record(self) -> None:
        """Checks that the record exists, until cancelled. Polls, because a watch does not show a purge."""
        while True:
            await asyncio.sleep(GUARD_S)
            with contextlib.suppress(BusUnavailable):
                if await self._record.is_lost():
                    self._log.error("known_lost", why="somebody deleted the record; the controller writes it again")
                    self._inbox.post(KnownLost(self._clock.monotonic_s()))

    async def _end(self, uid: str, grace_s: float) -> None:
        await self._places.end(uid, grace_s)

    async def _save(self, known: Known) -> KnownSaved | SaveFailed:
        try:
            await self._record.save(known)
        except NotSaved as error:
            self._log.warning("save_failed", why=str(error))
            return SaveFailed(self._clock.monotonic_s(), str(error))
        return KnownSaved(self._clock.monotonic_s())

    def _on_heartbeat(self, subject: str, received: Received) -> None:
        message = received.message
        if not isinstance(message, WorkerHeartbeat) or not self._is_of(subject, message.status):
            self._bus.dropped[MISADDRESSED] += 1
            return
        status = message.status
        self._inbox.post(WorkerHeard(self._clock.monotonic_s(), status))
        uid = uid_of(status.worker)
        if uid not in self._places and self._strangers(uid) and self._places.recognise(uid, status.pid):
            self._log.info("place_recognised", uid=uid, pid=status.pid)

    def _on_left(self, subject: str, received: Received) -> None:
        message = received.message
        if not isinstance(message, WorkerLeft) or not self._is_of(subject, message.status):
            self._bus.dropped[MISADDRESSED] += 1
            return
        self._inbox.post(WorkerSaidLeft(self._clock.monotonic_s(), message.status.worker, message.why))

    def _on_progress(self, subject: str, received: Received) -> None:
        message, sender = received.message, subjects.parse_worker(subject)
        if not isinstance(message, Progress) or sender is None or message.worker != sender.worker:
            self._bus.dropped[MISADDRESSED] += 1
        elif not is_name(message.job) or not self._progress.add(message):
            self._bus.dropped[REFUSED] += 1

    def _is_of(self, subject: str, status: WorkerStatus) -> bool:
        """True if the status is that of the worker whose subject carried it."""
        parsed = subjects.parse_worker(subject)
        own = parsed is not None and (parsed.cluster, parsed.worker) == (status.cluster, status.worker)
        return own and is_name(status.job)

    def _on_leader(self, _key: str, entry: Entry | None) -> None:
        """Learns the leader's epoch. While the key is lost, no new master can lead."""
        if entry is not None:
            self._inbox.post(LeaderSeen(self._clock.monotonic_s(), Epoch(entry.revision)))

    async def _on_command(self, _subject: str, received: Received) -> Answer:
        message, epoch = received.message, received.envelope.epoch
        ask, now_s = next(self._request_ids), self._clock.monotonic_s()
        event: KeepAsked | RemoveAsked
        if isinstance(message, ReportWhole):
            self._log_whole(message.why[:WHY_AT_MOST])
            self._inbox.post(WholeAsked(now_s))
            return Answer(ok=True)
        if isinstance(message, KeepWorkers):
            event = KeepAsked(now_s, message, epoch, ask)
        elif isinstance(message, RemoveWorkers):
            event = RemoveAsked(now_s, message, epoch, ask)
        else:
            return Answer(ok=False, why=f"{received.envelope.kind} is not a command for a cluster-controller")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[ask] = answer
        self._inbox.post(event)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await answer
        except TimeoutError:
            return Answer(ok=False, why=f"not decided within {ANSWER_WITHIN_S:g} s")
        finally:
            self._answers.pop(ask, None)


async def refuse_a_second(bus: Bus, cluster: ClusterName) -> None:
    """Sends a command without effect. Raises `UserError` if another controller of this cluster answers."""
    nothing = RemoveWorkers(JobName("none"), (), "probe for another controller")
    try:
        await bus.request(subjects.cluster_command(cluster), nothing, ANOTHER_ANSWERS_WITHIN_S)
    except (NoAnswer, BusUnavailable):
        return
    raise taken_over(cluster)


def taken_over(cluster: ClusterName) -> UserError:
    return UserError(
        f"Another cluster-controller of cluster {cluster!r} is running",
        "stop it first, or start this one with another --cluster",
    )
