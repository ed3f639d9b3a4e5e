"""All jobs of one master: adopted from KV at the start, made by people afterwards, each with a loop of its own.

A master is one term of leadership, whose epoch every message of it carries. A job's world goes on without any master:
the next one reads the records and adopts. What people ask for is `desk`'s, what comes in on the bus `hearing`'s.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from controlplane.allocator.demand import Demand
from controlplane.allocator.effects import Place
from controlplane.catalog.offers import Catalog
from controlplane.catalog.shipped import shipped_catalog
from controlplane.job import events
from controlplane.job.state import Job, Phase, Want
from controlplane.job.wants import next_want
from controlplane.lease.keeper import Leadership
from controlplane.ledger.books import Books
from controlplane.master import records
from controlplane.master.adopting import Adopting
from controlplane.master.announcer import Announcer
from controlplane.master.backup import Jobs
from controlplane.master.budgets import Budgets
from controlplane.master.guarding import Guard
from controlplane.master.hearing import Hearing
from controlplane.master.held import HeldJob
from controlplane.master.progress import ProgressTracker
from controlplane.master.refusals import JobUnknown, JobUnreadable
from controlplane.master.shell import JobShell, Tools
from controlplane.master.store_protocol import Met, Waiting
from controlplane.master.stores import StorePlace, StoreServers
from controlplane.master.wanted import WantedBook
from controlplane.planning.criteria import criteria_of
from controlplane.planning.profiles import profile_of
from messages import subjects
from messages.events import FLEET, Event
from messages.ids import Generation, JobName, Rank
from messages.jobs import JobSpec
from runtime.bus import Bucket, Bus
from runtime.clock import Clock
from runtime.errors import BusUnavailable
from runtime.logs import logger

if TYPE_CHECKING:
    # With the solver that plans, and what it is made of.
    from controlplane.capacity.capacity import Capacity
    from controlplane.capacity.planning import Planning

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
        self.adopting = Adopting(self, patient)
        self.hearing = Hearing(self)
        self.removing: set[JobName] = set()
        """Jobs whose records this master is deleting: nobody writes them again."""
        self._shipped: Catalog | None = None
        self._wanted = WantedBook(bucket, self.may_act)
        self._stores = StoreServers(place, self._on_store_lost, self._on_ranks)
        self._tools = Tools(bus, bucket, self._stores, self.announcer, self._wanted, self._want, clock, leadership)
        self._forgetting = asyncio.Lock()
        """By two at once, one might forget a new job of the name that the other has just made free."""
        self._log = logger(epoch=leadership.epoch)
        self._tasks: asyncio.TaskGroup | None = None
        self.is_over = False
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
                self.is_over = True

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._stores.run(), name="stores")
        tasks.create_task(self.announcer.run(), name="announcer")
        tasks.create_task(self._wanted.run(), name="wanted")
        await self.adopting.adopt_all()
        await self.hearing.listen()
        tasks.create_task(self.budgets.run(), name="budgets")
        tasks.create_task(Guard(self).run(), name="guard")
        live = sum(not held.ended for held in self.jobs.values())
        self.announce_fleet("master_started", f"master {self.bus.settings.name} leads", jobs=live)

    async def drain(self, timeout_s: float) -> None:
        self.announce_fleet("master_stopped", f"master {self.bus.settings.name} ends; jobs go on without it")
        await self.announcer.drain(timeout_s)

    def kept(self) -> Jobs:
        return tuple(
            records.Kept(held.state.spec, held.state.record, self.books.known(held.name))
            for held in self.jobs.values()
            if held.name not in self.removing
        )

    @property
    def planning(self) -> "Planning | None":
        return self.capacity.planning if self.capacity is not None else None

    def job(self, name: str) -> HeldJob:
        """Raises `JobUnknown` and `JobUnreadable`."""
        held = self.jobs.get(JobName(name))
        if held is None:
            why = self.adopting.unreadable.get(JobName(name))
            raise JobUnreadable(name, why) if why is not None else JobUnknown(name)
        return held

    @property
    def unread(self) -> tuple[JobName, ...]:
        """Of which there are records on the bus that were not read, or cannot be."""
        return tuple(sorted(self.adopting.being_made | self.adopting.unreadable.keys()))

    def knows(self, name: JobName) -> bool:
        """It is held, or is being made just now."""
        return name in self.jobs or name in self.adopting.being_made

    async def make(self, spec: JobSpec) -> None:
        """Raises `JobExists`, `HandedOver` and `BusUnavailable`."""
        await self.adopting.make(spec)

    def hold(self, job: Job, revision: int, progress: ProgressTracker | None = None) -> None:
        shell = JobShell(job.name, self._tools, revision, lambda: self.adopting.again(job.name))
        held = HeldJob(job, shell, self.clock, progress, self._on_decided)
        self.jobs[job.name] = held
        self.books.open(job)
        if not held.ended:
            held.start(self._group())
        if self.capacity is not None:
            planned = job.spec.capacity is not None
            demand = Demand(criteria_of(job.spec), profile_of(job.spec)) if planned else None
            idle_timeout_s = job.spec.capacity.idle_timeout_s if job.spec.capacity is not None else None
            self.capacity.hold(
                self._group(),
                job.name,
                next_want(job, self.clock.monotonic_s()),
                demand=demand,
                idle_timeout_s=idle_timeout_s,
                measured_within_s=MEASURED_S if _trains(job) else 0.0,
            )

    async def forget_oldest(self) -> None:
        """What is kept of ended jobs is bounded, or one day no record could be saved any more.

        Not of those of which anything is left: the next master would not know that it has to be removed.
        """
        async with self._forgetting:
            await self._forget(self._oldest())

    def _oldest(self) -> list[HeldJob]:
        ended = [
            held for held in self.jobs.values() if held.ended and not (held.unsettled or self.holds_machines(held))
        ]
        return sorted(ended, key=lambda held: held.state.record.submitted_at)[: max(0, len(ended) - self.keep_jobs)]

    async def _forget(self, oldest: list[HeldJob]) -> None:
        for held in oldest:
            if not self.may_act():
                return
            try:
                await self._remove_records(held)
            except BusUnavailable as error:
                self._log.warning("job_not_forgotten", job=held.name, error=str(error))
                return
            await self._let_go(held)

    async def remove(self, held: HeldJob) -> None:
        """An ended job with all that is kept of it. Its name is free afterwards. Raises `BusUnavailable`."""
        async with self._forgetting:
            if self.jobs.get(held.name) is not held:
                return
            await self._remove_records(held)
            await records.remove_words(self.bus, held.name)
            await self._let_go(held)

    async def _remove_records(self, held: HeldJob) -> None:
        """The only place where a master removes the records of a job that it holds.

        The spec is deleted first: without it the other records are no job, and cannot run again.
        """
        self.removing.add(held.name)
        try:
            await self.bucket.delete(subjects.spec_key(held.name))
            self.books.close(held.name)
            await records.remove_leavings(self.bucket, held.name)
        except BusUnavailable:
            self.removing.discard(held.name)
            raise

    async def _let_go(self, held: HeldJob) -> None:
        self.jobs.pop(held.name, None)
        self.removing.discard(held.name)
        await held.stop()

    def holds_machines(self, held: HeldJob) -> bool:
        """The cloud still has something of it."""
        return self.capacity is not None and not self.capacity.is_settled(held.name)

    def post(self, held: HeldJob, event: events.JobEvent) -> None:
        """A job that had ended before this master started gets a loop when somebody of it is still heard."""
        if not self.is_over:
            held.start(self._group())
            held.post(event)

    def place(self, name: JobName, placed: Place) -> None:
        """The job's allocator has decided where its workers are to be."""
        self.jobs[name].post(
            events.PlacementChanged(
                self.clock.monotonic_s(),
                placed.want,
                placed.workers,
                placed.shortage,
                placed.leaving,
                placed.at_once,
            )
        )

    def _want(self, name: JobName, want: Want) -> None:
        if self.capacity is not None:
            self.capacity.want(name, want)

    def _on_decided(self, job: Job) -> None:
        if self.capacity is not None:
            self.books.hear(job)

    def _on_store_lost(self, name: JobName) -> None:
        if name in self.jobs:
            self.jobs[name].post(events.StoreLost(self.clock.monotonic_s()))

    def _on_ranks(self, name: JobName, told: Waiting | Met) -> None:
        held, now_s, generation = self.jobs.get(name), self.clock.monotonic_s(), Generation(told.generation)
        if held is None:
            return
        if isinstance(told, Met):
            held.post(events.RanksMet(now_s, generation))
            return
        waiting = tuple(Rank(rank) for rank in told.waiting)
        missing = tuple(Rank(rank) for rank in told.missing)
        held.post(events.RanksWaited(now_s, generation, waiting, missing))

    def list_prices(self) -> Catalog:
        if self.planning is not None:
            return self.planning.list_prices()
        self._shipped = self._shipped or shipped_catalog()
        return self._shipped

    def announce(self, event: Event) -> None:
        self.announcer.announce(event)

    def announce_fleet(self, kind: str, text: str, why: str = "", **fields: str | int) -> None:
        self.announcer.announce(Event(FLEET, kind, text, why, {**fields, "epoch": self.epoch}))

    def soon(self, work: Coroutine[Any, Any, None], name: JobName) -> None:
        if self.is_over:
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
