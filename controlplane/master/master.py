"""All jobs of one master: adopted from KV at the start, made by people afterwards, each with a loop of its own.

A master is one term of leadership, whose epoch every message of it carries. A job's world goes on without any master:
the next one reads the records and adopts. What people ask for is `desk`'s, what comes in on the bus `hearing`'s.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from controlplane.catalog.offers import Catalog
from controlplane.catalog.shipped import shipped_catalog
from controlplane.job import events
from controlplane.job.present import deserted
from controlplane.job.state import Job, Phase, adopted_job, new_job
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.master import records
from controlplane.master.announcer import Announcer
from controlplane.master.backup import Jobs
from controlplane.master.budgets import Budgets
from controlplane.master.hearing import Hearing
from controlplane.master.held import HeldJob
from controlplane.master.progress import ProgressTracker
from controlplane.master.refusals import HandedOver, JobExists, JobUnknown, JobUnreadable
from controlplane.master.shell import JobShell, Tools
from controlplane.master.store_protocol import Waiting
from controlplane.master.stores import StorePlace, StoreServers
from controlplane.master.wanted import WantedBook
from controlplane.master.wishes import Wishes
from messages import subjects
from messages.events import FLEET, Event
from messages.ids import Generation, JobName, Rank
from messages.jobs import JobSpec
from runtime.bus import Bucket, Bus, Entry
from runtime.clock import Clock
from runtime.errors import BusUnavailable, Conflict
from runtime.logs import logger

if TYPE_CHECKING:
    # With the solver that plans, and what it is made of.
    from controlplane.capacity.capacity import Capacity
    from controlplane.capacity.placement import Placed
    from controlplane.capacity.planning import Planning

ADOPT_RETRY_S = 1.0
MEASURED_S = 10.0
"""So long a job that trains already may take to tell what its steps need, before a plan is made without."""


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
        self.clock = clock
        self.epoch = leadership.epoch
        self.may_act = leadership.may_act
        self.version = version
        self.keep_jobs = keep_jobs
        """How many that have ended."""
        self.dropped: Counter[str] = Counter()
        self.announcer = Announcer(bus, leadership.epoch, self.dropped)
        self.books = Books(bucket, clock, leadership, catalog=self.list_prices)
        self.bucket = bucket
        self.budgets = Budgets(self)
        self.fleet = ""
        """Its name, where machines come from a cloud."""
        self.capacity: Capacity | None = None
        """Where machines come from; without it workers come from static clusters only."""
        self.hearing = Hearing(self)
        self._wishes = Wishes()
        self._shipped: Catalog | None = None
        self._patient = patient
        """The same bucket with longer timeouts, for the start."""
        self._wanted = WantedBook(bucket, self.may_act)
        self._stores = StoreServers(place, self._on_store_lost, self._on_ranks_waiting)
        self._tools = Tools(bus, bucket, self._stores, self.announcer, self._wanted, clock, leadership)
        self._being_made: set[JobName] = set()
        self._unreadable: dict[JobName, str] = {}
        """Jobs whose records cannot be read, and why."""
        self._forgetting = asyncio.Lock()
        """By two at once, one might forget a new job of the name that the other has just made free."""
        self._log = logger(epoch=leadership.epoch)
        self._tasks: asyncio.TaskGroup | None = None
        self._over = False
        """What still comes in is for whoever leads next."""

    async def run(self, started: asyncio.Event) -> None:
        """Until cancelled. Jobs go on: nothing here tells them to end."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await self._begin(tasks)
                started.set()
                await asyncio.Event().wait()
            finally:
                self._over = True

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._stores.run(), name="stores")
        tasks.create_task(self.announcer.run(), name="announcer")
        tasks.create_task(self._wanted.run(), name="wanted")
        await self._adopt_all()
        await self._patient.watch(subjects.JOB_SPECS, self._on_spec)
        await self.hearing.listen()
        tasks.create_task(self.budgets.run(), name="budgets")
        live = sum(not held.ended for held in self.jobs.values())
        self.announce_fleet("master_started", f"master {self.bus.settings.name} leads", jobs=live)

    async def drain(self, timeout_s: float) -> None:
        self.announce_fleet("master_stopped", f"master {self.bus.settings.name} ends; jobs go on without it")
        await self.announcer.drain(timeout_s)

    def kept(self) -> Jobs:
        return tuple(
            records.Kept(held.state.spec, held.state.record, self.books.known(held.name)) for held in self.jobs.values()
        )

    @property
    def planning(self) -> "Planning | None":
        return self.capacity.planning if self.capacity is not None else None

    def job(self, name: str) -> HeldJob:
        """Raises `JobUnknown` and `JobUnreadable`."""
        held = self.jobs.get(JobName(name))
        if held is None:
            why = self._unreadable.get(JobName(name))
            raise JobUnreadable(name, why) if why is not None else JobUnknown(name)
        return held

    @property
    def unread(self) -> tuple[JobName, ...]:
        """Of which there are records on the bus that were not read, or cannot be."""
        return tuple(sorted(self._being_made | self._unreadable.keys()))

    def knows(self, name: JobName) -> bool:
        """It is held, or is being made just now."""
        return name in self.jobs or name in self._being_made

    # Jobs begin

    async def make(self, spec: JobSpec) -> None:
        """Raises `JobExists`, `HandedOver` and `BusUnavailable`."""
        name = JobName(spec.name)
        if self.knows(name):
            raise JobExists(name)
        self._being_made.add(name)
        try:
            if await self.bucket.get(subjects.spec_key(name)) is None:
                await self._remove_leavings(name)
            await self.bucket.create(subjects.spec_key(name), records.encode_spec(spec))
            if self._over:
                raise HandedOver(name)
            self._hold(self._new_job(spec), revision=0)
        except Conflict:
            raise JobExists(name) from None
        finally:
            self._being_made.discard(name)

    async def forget_oldest(self) -> None:
        """What is kept of ended jobs is bounded, or one day no record could be saved any more.

        Not of those of which anything is left: the next master would not know that it has to be removed.
        """
        async with self._forgetting:
            await self._forget(self._oldest())

    def _oldest(self) -> list[HeldJob]:
        ended = [held for held in self.jobs.values() if held.ended and not held.unsettled and self._holds_none(held)]
        return sorted(ended, key=lambda held: held.state.record.submitted_at)[: max(0, len(ended) - self.keep_jobs)]

    async def _forget(self, oldest: list[HeldJob]) -> None:
        for held in oldest:
            if not self.may_act():
                return
            try:
                # First what makes it a job: one of which only a part is left would run again, or have cost nothing.
                await self.bucket.delete(subjects.spec_key(held.name))
                self.books.close(held.name)
                await self._remove_leavings(held.name)
            except BusUnavailable as error:
                self._log.warning("job_not_forgotten", job=held.name, error=str(error))
                return
            self.jobs.pop(held.name, None)
            self._wishes.forget(held.name)
            await held.stop()

    async def _remove_leavings(self, name: JobName) -> None:
        """Of a job that is no more. If this master does not come to it, whoever makes the next one of its name does."""
        for key in (subjects.world_key(name), subjects.ledger_key(name)):
            if await self.bucket.get(key) is not None:
                await self.bucket.delete(key)

    def _holds_none(self, held: HeldJob) -> bool:
        return self.capacity is None or self.capacity.is_settled(held.name)

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
            self._unreadable[name] = str(error)
            return
        self._unreadable.pop(name, None)
        if stored is None:
            self._hold(self._new_job(spec), revision=0, progress=progress)
            return
        job = adopted_job(spec, stored.record, epoch=self.epoch, at_s=self.clock.monotonic_s())
        self._log.info("job_adopted", job=name, phase=job.record.phase, generation=job.record.generation)
        self._hold(job, stored.revision, progress)

    def _new_job(self, spec: JobSpec) -> Job:
        return new_job(spec, epoch=self.epoch, at_s=self.clock.monotonic_s(), submitted_at=self.clock.wall_s())

    def _hold(self, job: Job, revision: int, progress: ProgressTracker | None = None) -> None:
        shell = JobShell(job.name, self._tools, revision, lambda: self._soon(self._readopt(job.name), job.name))
        held = HeldJob(job, shell, self.clock, progress, self._on_decided)
        self.jobs[job.name] = held
        self.books.open(job)
        if not held.ended:
            held.start(self._group())
        if self.capacity is not None:
            demand = self._wishes.demand(job, held.progress.step, self.clock.wall_s())
            idle_timeout_s = job.spec.capacity.idle_timeout_s if job.spec.capacity is not None else None
            self.capacity.hold(
                self._group(), job.name, *_demand(job), demand, idle_timeout_s, MEASURED_S if _trains(job) else 0.0
            )

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

    def _on_spec(self, key: str, entry: Entry | None) -> None:
        """A job that was made by a master which has just ended, after this one had looked."""
        name = subjects.parse_spec_key(key)
        if name is not None and entry is None:
            self._unreadable.pop(name, None)
        if name is None or entry is None or self.knows(name):
            return
        self._being_made.add(name)
        self._soon(self._adopt_found(name), name)

    async def _adopt_found(self, name: JobName) -> None:
        try:
            await self._adopt_from_bus(name)
        finally:
            self._being_made.discard(name)

    # Jobs and what serves them

    def post(self, held: HeldJob, event: events.JobEvent) -> None:
        """A job that had ended before this master started gets a loop when somebody of it is still heard."""
        if not self._over:
            held.start(self._group())
            held.post(event)

    def place(self, name: JobName, placed: "Placed") -> None:
        """The allocator has decided where the job's workers are to be, and says why they may be too few."""
        now_s = self.clock.monotonic_s()
        self.jobs[name].post(
            events.PlacementChanged(now_s, placed.workers, placed.shortage, placed.leaving, placed.at_once)
        )

    def _on_decided(self, job: Job) -> None:
        if self.capacity is None:
            return
        criteria = self._wishes.criteria(job, self.jobs[job.name].progress.step, self.clock.wall_s())
        self.capacity.wants(job.name, *_demand(job), criteria)
        self.books.hear(job)
        for cluster in deserted(job, self.clock.monotonic_s()):
            self.capacity.lose(job.name, cluster, f"nothing is heard of cluster {cluster}")

    def _on_store_lost(self, name: JobName) -> None:
        self.jobs[name].post(events.StoreLost(self.clock.monotonic_s()))

    def _on_ranks_waiting(self, name: JobName, told: Waiting) -> None:
        waiting = tuple(Rank(rank) for rank in told.waiting)
        missing = tuple(Rank(rank) for rank in told.missing)
        now_s = self.clock.monotonic_s()
        self.jobs[name].post(events.RanksWaited(now_s, Generation(told.generation), waiting, missing))

    def list_prices(self) -> Catalog:
        if self.planning is not None:
            return self.planning.list_prices()
        self._shipped = self._shipped or shipped_catalog()
        return self._shipped

    # Small things

    def announce(self, event: Event) -> None:
        self.announcer.announce(event)

    def announce_fleet(self, kind: str, text: str, why: str = "", **fields: str | int) -> None:
        self.announcer.announce(Event(FLEET, kind, text, why, {**fields, "epoch": self.epoch}))

    def _soon(self, work: Coroutine[Any, Any, None], name: JobName) -> None:
        if self._over:
            work.close()
        else:
            self._group().create_task(work, name=f"adopt/{name}")

    def _group(self) -> asyncio.TaskGroup:
        if self._tasks is None:
            raise RuntimeError("the master does not run yet")
        return self._tasks


def _trains(job: Job) -> bool:
    """What its steps need its trainers know better than its file."""
    return job.record.phase is Phase.RUNNING


def _demand(job: Job) -> tuple[int, str | None]:
    """How many nodes the job wants, and why it wants none any more."""
    wanted = job.record.wanted if job.record.paused is None else 0
    return wanted, job.record.why if job.record.phase.ended else None
