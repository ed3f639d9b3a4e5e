"""All jobs of one master: adopted from KV at the start, submitted by people afterwards, each with a loop of its own.

A master is one term of leadership, whose epoch every message of it carries. A job's world goes on without any master:
the next one reads the records and adopts.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.capacity.capacity import Capacity
from controlplane.job import events
from controlplane.job.present import deserted
from controlplane.job.state import Job, Record, adopted_job, new_job
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.ledger.views import cost_view, planned_steps
from controlplane.master import inbox, records
from controlplane.master.announcer import Announcer
from controlplane.master.held import HeldJob, Reported
from controlplane.master.inbox import Refused
from controlplane.master.memory import Jobs
from controlplane.master.progress import ProgressTracker
from controlplane.master.refusals import JobExists, JobUnknown, NotLeading, ScaleRefused, SpecRefused
from controlplane.master.shell import JobShell, Tools
from controlplane.master.store_protocol import Waiting
from controlplane.master.stores import StorePlace, StoreServers
from controlplane.master.views import job_view
from controlplane.master.wanted import WantedBook
from messages import subjects
from messages.api import Health, JobView, Version
from messages.clusters import ClusterHeartbeat
from messages.codec import Received
from messages.costs import CostView
from messages.envelope import VERSION as PROTOCOL
from messages.events import FLEET, Event
from messages.ids import ClusterName, Generation, JobName, Rank
from messages.jobs import JobSpec, Workers, contradictions
from runtime.bus import Bucket, Bus, Entry
from runtime.clock import Clock
from runtime.errors import BusUnavailable, Conflict
from runtime.logs import Once, logger

CLUSTER_FRESH_S = 5.0
DECISION_TIMEOUT_S = 2.0
ADOPT_RETRY_S = 1.0
FEED_AT_MOST = 1000
NO_FLEET = "This master has no fleet: its workers are on machines that nobody bills here."


class Master:
    def __init__(
        self,
        bus: Bus,
        bucket: Bucket,
        patient: Bucket,
        place: StorePlace,
        clock: Clock,
        leadership: Leadership,
        version: str,
        keep_jobs: int,
    ) -> None:
        self.bus = bus
        self.jobs: dict[JobName, HeldJob] = {}
        self.may_act = leadership.may_act
        self._bucket = bucket
        self._patient = patient
        """The same bucket with longer timeouts, for the start."""
        self._clock = clock
        self._epoch = leadership.epoch
        self._version = version
        self._keep_jobs = keep_jobs
        self._dropped: Counter[str] = Counter()
        self._announcer = Announcer(bus, leadership.epoch, self._dropped)
        self._wanted = WantedBook(bucket, self.may_act)
        self._stores = StoreServers(place, self._on_store_lost, self._on_ranks_waiting)
        self.books = Books(bucket, clock, leadership)
        self._tools = Tools(bus, bucket, self._stores, self._announcer, self._wanted, clock, leadership)
        self._clusters: dict[ClusterName, tuple[str, float]] = {}
        self._being_made: set[JobName] = set()
        self._log = logger(epoch=leadership.epoch)
        self._log_once = Once()
        self._tasks: asyncio.TaskGroup | None = None
        self.capacity: Capacity | None = None
        """Where machines come from; without it workers come from static clusters only."""

    async def run(self, started: asyncio.Event) -> None:
        """Until cancelled. Jobs go on: nothing here tells them to end."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._stores.run(), name="stores")
            tasks.create_task(self._announcer.run(), name="announcer")
            tasks.create_task(self._wanted.run(), name="wanted")
            await self._adopt_all()
            await self._patient.watch(subjects.JOB_SPECS, self._on_spec)
            await self._listen()
            live = sum(not held.ended for held in self.jobs.values())
            self._announce_fleet("master_started", f"master {self.bus.settings.name} leads", jobs=live)
            started.set()

    async def drain(self, timeout_s: float) -> None:
        self._announce_fleet("master_stopped", f"master {self.bus.settings.name} ends; jobs go on without it")
        await self._announcer.drain(timeout_s)

    def kept(self) -> Jobs:
        return tuple((held.state.spec, held.state.record) for held in self.jobs.values())

    # For people

    @property
    def has_told_all(self) -> bool:
        """No event waits to be sent, and streams are being read."""
        return self._announcer.idle and self.bus.connected

    def views(self) -> tuple[JobView, ...]:
        now_s = self._clock.monotonic_s()
        held = sorted(self.jobs.values(), key=lambda job: (job.state.record.submitted_at, job.name))
        return tuple(job_view(job.state, job.progress, now_s) for job in held)

    def view(self, name: str) -> JobView:
        held = self.job(name)
        return job_view(held.state, held.progress, self._clock.monotonic_s())

    def job(self, name: str) -> HeldJob:
        held = self.jobs.get(JobName(name))
        if held is None:
            raise JobUnknown(name)
        return held

    async def submit(self, spec: JobSpec) -> JobView:
        name = JobName(spec.name)
        found = contradictions(spec)
        if name == FLEET:
            found.append(("name", f"{FLEET!r} is where events that belong to no job are kept"))
        if found:
            raise SpecRefused(tuple(f"{path}: {text}" for path, text in found))
        if name in self.jobs or name in self._being_made:
            raise JobExists(name)
        self._check_leads()
        self._being_made.add(name)
        try:
            await self._bucket.create(subjects.spec_key(name), records.encode_spec(spec))
            self._hold(self._new_job(spec), revision=0)
        except Conflict:
            raise JobExists(name) from None
        finally:
            self._being_made.discard(name)
        self._announcer.announce(Event(name, "job_submitted", f"the job was submitted for {_size(spec.workers)}"))
        await self._forget_oldest()
        return self.view(name)

    async def _forget_oldest(self) -> None:
        """What is kept of ended jobs is bounded, or one day no record could be saved any more.

        Not of those of which anything is left: the next master would not know that it has to be removed.
        """
        ended = [held for held in self.jobs.values() if held.ended and not held.unsettled and self._holds_none(held)]
        oldest = sorted(ended, key=lambda held: held.state.record.submitted_at)[: max(0, len(ended) - self._keep_jobs)]
        for held in oldest:
            if not self.may_act():
                return
            try:
                await self._bucket.delete(subjects.ledger_key(held.name))
                await self._bucket.delete(subjects.world_key(held.name))
                await self._bucket.delete(subjects.spec_key(held.name))
            except BusUnavailable as error:
                self._log.warning("job_not_forgotten", job=held.name, error=str(error))
                return
            self.jobs.pop(held.name, None)
            self.books.close(held.name)
            await held.stop()

    def _holds_none(self, held: HeldJob) -> bool:
        return self.capacity is None or self.capacity.is_settled(held.name)

    async def stop_job(self, name: str) -> JobView:
        held = self.job(name)
        if not held.ended:
            self._check_leads()
            held.post(events.StopAsked(self._clock.monotonic_s(), "stopped by a person"))
            await held.until(_saved(lambda record: record.stop_why is not None), DECISION_TIMEOUT_S)
        return self.view(name)

    async def scale(self, name: str, workers: int) -> JobView:
        held = self.job(name)
        limits = held.state.spec.workers
        if held.ended:
            raise ScaleRefused(f"Job {name!r} has {held.state.record.phase}.", "tradewind status")
        if not limits.min <= workers <= limits.max:
            raise ScaleRefused(
                f"Job {name!r} can have {limits.min} to {limits.max} workers, not {workers}.",
                f"tradewind scale {name} {min(max(workers, limits.min), limits.max)}",
            )
        self._check_leads()
        held.post(events.ScaleAsked(self._clock.monotonic_s(), workers))
        await held.until(_saved(lambda record: record.wanted == workers), DECISION_TIMEOUT_S)
        return self.view(name)

    async def cost(self, name: str, total_steps: int | None = None) -> CostView:
        """Raises `BusUnavailable`."""
        spec = self.job(name).state.spec
        ledger = await self.books.ledger(JobName(name))
        if ledger is None:
            raise JobUnknown(name)
        return cost_view(ledger, total_steps or planned_steps(spec), "" if self.capacity is not None else NO_FLEET)

    @contextmanager
    def progress_feed(self, name: str) -> Iterator["asyncio.Queue[Reported]"]:
        """Progress messages as they come; the oldest is dropped for a reader that does not keep up."""
        held = self.job(name)
        feed: asyncio.Queue[Reported] = asyncio.Queue(FEED_AT_MOST)

        def listen(reported: Reported) -> None:
            if feed.full():
                feed.get_nowait()
            feed.put_nowait(reported)

        held.listeners.add(listen)
        try:
            yield feed
        finally:
            held.listeners.discard(listen)

    def health(self) -> Health:
        fresh_s = self._clock.monotonic_s() - CLUSTER_FRESH_S
        return Health(
            ok=self.bus.connected,
            why="" if self.bus.connected else "the bus is away",
            jobs=sum(not held.ended for held in self.jobs.values()),
            clusters=sum(heard_s >= fresh_s for _, heard_s in self._clusters.values()),
            dropped=dict(self.bus.dropped + self._dropped),
        )

    def version(self) -> Version:
        return Version(self._version, PROTOCOL, self._epoch)

    # Jobs

    async def _adopt_all(self) -> None:
        for key, entry in (await self._patient.entries(subjects.JOB_SPECS)).items():
            name = subjects.parse_spec_key(key)
            if name is not None:
                await self._adopt(name, entry.value)

    async def _adopt(self, name: JobName, value: bytes, progress: ProgressTracker | None = None) -> None:
        try:
            spec = records.decode_spec(name, value)
            stored = await records.read_world(self._patient, name)
        except records.RecordUnreadable as error:
            self._log.error("stored_job_unreadable", job=name, error=str(error))
            return
        if stored is None:
            self._hold(self._new_job(spec), revision=0, progress=progress)
            return
        job = adopted_job(spec, stored.record, epoch=self._epoch, at_s=self._clock.monotonic_s())
        self._log.info("job_adopted", job=name, phase=job.record.phase, generation=job.record.generation)
        self._hold(job, stored.revision, progress)

    def _new_job(self, spec: JobSpec) -> Job:
        return new_job(spec, epoch=self._epoch, at_s=self._clock.monotonic_s(), submitted_at=self._clock.wall_s())

    def _hold(self, job: Job, revision: int, progress: ProgressTracker | None = None) -> None:
        shell = JobShell(job.name, self._tools, revision, lambda: self._soon(self._readopt(job.name), job.name))
        held = HeldJob(job, shell, self._clock, progress, self._on_decided)
        self.jobs[job.name] = held
        self.books.open(job)
        if not held.ended:
            held.start(self._group())
        if self.capacity is not None:
            self.capacity.hold(self._group(), job.name, *_demand(job))

    async def _readopt(self, name: JobName) -> None:
        """The master before this one wrote the record after it was read here: begin again from what it wrote."""
        held = self.jobs[name]
        self._log.warning("job_adopted_again", job=name)
        await held.stop()
        await self._adopt_from_bus(name, held.progress)

    async def _adopt_from_bus(self, name: JobName, progress: ProgressTracker | None = None) -> None:
        while True:
            try:
                entry = await self._patient.get(subjects.spec_key(name))
                if entry is not None:
                    await self._adopt(name, entry.value, progress)
                return
            except BusUnavailable as error:
                self._log.warning("job_not_adopted", job=name, error=str(error), again_in_s=ADOPT_RETRY_S)
                await asyncio.sleep(ADOPT_RETRY_S)

    # What comes in

    async def _listen(self) -> None:
        for fact in subjects.WORKER_FACTS:
            await self.bus.subscribe(subjects.worker_fact(None, None, fact), self._on_worker_fact)
        await self.bus.subscribe(subjects.cluster_heartbeat(), self._on_topology)
        await self.bus.subscribe(subjects.progress(), self._on_progress)

    def _on_worker_fact(self, subject: str, received: Received) -> None:
        heard = inbox.worker_fact(subject, received.message, self._clock.monotonic_s())
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        held = self.jobs.get(heard.job)
        if held is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        self._post(held, heard.event)

    def _on_topology(self, subject: str, received: Received) -> None:
        heard = inbox.topology(subject, received.message)
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        now_s = self._clock.monotonic_s()
        self._see_cluster(heard, now_s)
        if self.capacity is not None:
            self.capacity.see(heard)
            self.books.see(heard)
        named = inbox.jobs_of(heard)
        for held in self.jobs.values():
            if not held.ended or held.unsettled or held.name in named:
                self._post(held, events.ClusterReported(now_s, heard))

    def _see_cluster(self, heartbeat: ClusterHeartbeat, now_s: float) -> None:
        known = self._clusters.get(heartbeat.cluster)
        self._clusters[heartbeat.cluster] = (heartbeat.incarnation, now_s)
        if known is None or known[0] != heartbeat.incarnation:
            text = f"cluster {heartbeat.cluster} was heard: {len(heartbeat.workers)} workers"
            why = "its controller was started" if known is not None else "first heard by this master"
            self._announce_fleet("cluster_seen", text, why, cluster=heartbeat.cluster, region=heartbeat.region)

    def _on_progress(self, subject: str, received: Received) -> None:
        heard = inbox.progress(subject, received.message)
        if isinstance(heard, Refused):
            self._refuse(heard, subject)
            return
        held = self.jobs.get(heard.job)
        if held is None:
            self._refuse(Refused.UNKNOWN_JOB, subject)
            return
        held.report(received.envelope.at.timestamp(), heard)
        self.books.hear_progress(heard)

    def _on_decided(self, job: Job) -> None:
        if self.capacity is None:
            return
        self.capacity.wants(job.name, *_demand(job))
        self.books.hear(job)
        for cluster in deserted(job, self._clock.monotonic_s()):
            self.capacity.lose(job.name, cluster, f"nothing is heard of cluster {cluster}")

    def place(self, name: JobName, workers: dict[ClusterName, int], shortage: str) -> None:
        """The allocator has decided where the job's workers are to be, and says why they may be too few."""
        self.jobs[name].post(events.PlacementChanged(self._clock.monotonic_s(), workers, shortage))

    def announce(self, event: Event) -> None:
        self._announcer.announce(event)

    def _on_store_lost(self, name: JobName) -> None:
        self.jobs[name].post(events.StoreLost(self._clock.monotonic_s()))

    def _on_ranks_waiting(self, name: JobName, told: Waiting) -> None:
        waiting = tuple(Rank(rank) for rank in told.waiting)
        missing = tuple(Rank(rank) for rank in told.missing)
        now_s = self._clock.monotonic_s()
        self.jobs[name].post(events.RanksWaited(now_s, Generation(told.generation), waiting, missing))

    def _on_spec(self, key: str, entry: Entry | None) -> None:
        """A job that was made by a master which has just ended, after this one had looked."""
        name = subjects.parse_spec_key(key)
        if name is None or entry is None or name in self.jobs or name in self._being_made:
            return
        self._being_made.add(name)
        self._soon(self._adopt_found(name), name)

    async def _adopt_found(self, name: JobName) -> None:
        try:
            await self._adopt_from_bus(name)
        finally:
            self._being_made.discard(name)

    # Small things

    def _check_leads(self) -> None:
        if not self.may_act():
            raise NotLeading

    def _post(self, held: HeldJob, event: events.JobEvent) -> None:
        """A job that had ended before this master started gets a loop when somebody of it is still heard."""
        held.start(self._group())
        held.post(event)

    def _refuse(self, reason: Refused, subject: str) -> None:
        self._dropped[reason] += 1
        if self._log_once(reason):
            self._log.warning("message_dropped", reason=reason, subject=subject)

    def _announce_fleet(self, kind: str, text: str, why: str = "", **fields: str | int) -> None:
        self._announcer.announce(Event(FLEET, kind, text, why, {**fields, "epoch": self._epoch}))

    def _soon(self, work: Coroutine[Any, Any, None], name: JobName) -> None:
        self._group().create_task(work, name=f"adopt/{name}")

    def _group(self) -> asyncio.TaskGroup:
        if self._tasks is None:
            raise RuntimeError("the master does not run yet")
        return self._tasks


def _saved(holds: Callable[[Record], bool]) -> Callable[[Job], bool]:
    """Decided, and so that the next master knows it too."""
    return lambda job: job.saved is not None and (job.saved.phase.ended or holds(job.saved))


def _demand(job: Job) -> tuple[int, str | None]:
    """How many nodes the job wants, and why it wants none any more."""
    return job.record.wanted, job.record.why if job.record.phase.ended else None


def _size(workers: Workers) -> str:
    count = f"{workers.max}" if workers.min == workers.max else f"{workers.min} to {workers.max}"
    ranks = f", {workers.ranks} ranks each" if workers.ranks > 1 else ""
    return f"{count} {'worker' if count == '1' else 'workers'}{ranks}"
