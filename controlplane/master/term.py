"""The parts that run while a master leads. Jobs outlive a term: the next leader takes them over."""

import asyncio

from controlplane.allocator.effects import Place
from controlplane.api.service import JobService
from controlplane.capacity.interface import JobCapacity
from controlplane.capacity.translation import placement_changed
from controlplane.job import events
from controlplane.jobs.budgets import Budgets
from controlplane.jobs.context import TermContext
from controlplane.jobs.guard import Guard
from controlplane.jobs.ingest import Ingest
from controlplane.jobs.registry import JobRegistry
from controlplane.jobs.shell import ShellTools
from controlplane.ledger.books import Books
from controlplane.stores.protocol import Met, Waiting
from controlplane.stores.servers import StorePlace, StoreServers
from messages.api import Version
from messages.ids import Generation, JobName, Rank
from runtime.bus import Bucket


class Term:
    def __init__(
        self,
        context: TermContext,
        patient: Bucket,
        place: StorePlace,
        books: Books,
        capacity: JobCapacity,
        about: Version,
        keep_jobs: int,
    ) -> None:
        self.context = context
        self.books = books
        self.capacity = capacity
        self._stores = StoreServers(place, self._on_store_lost, self._on_ranks)
        tools = ShellTools(self._stores, capacity)
        self.registry = JobRegistry(context, patient, tools, books, keep_jobs)
        self.ingest = Ingest(context, self.registry, books, capacity)
        self.budgets = Budgets(context, self.registry, books, capacity)
        self.service = JobService(context, self.registry, self.ingest, self.budgets, capacity, about)

    async def run(self, started: asyncio.Event) -> None:
        """Runs until cancelled. Jobs continue afterwards."""
        async with asyncio.TaskGroup() as tasks:
            try:
                await self._begin(tasks)
                started.set()
                await asyncio.Event().wait()
            finally:
                self.registry.is_over = True

    async def _begin(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._stores.run(), name="stores")
        tasks.create_task(self.context.announcer.run(), name="announcer")
        await self.registry.begin(tasks)
        await self.ingest.listen()
        tasks.create_task(self.budgets.run(), name="budgets")
        tasks.create_task(Guard(self.context, self.registry).run(), name="guard")
        self.context.announce_fleet("master_started", f"master {self._name} leads", jobs=self.registry.live)

    async def drain(self, timeout_s: float) -> None:
        self.context.announce_fleet("master_stopped", f"master {self._name} ends; jobs continue without it")
        await self.context.announcer.drain(timeout_s)

    def place(self, job: JobName, place: Place) -> None:
        """Passes a placement of the job's allocator to the job."""
        self.registry.post_to(job, placement_changed(place, self.context.now_s()))

    @property
    def _name(self) -> str:
        return self.context.bus.settings.name

    def _on_store_lost(self, job: JobName) -> None:
        self.registry.post_to(job, events.StoreLost(self.context.now_s()))

    def _on_ranks(self, job: JobName, reported: Waiting | Met) -> None:
        now_s, generation = self.context.now_s(), Generation(reported.generation)
        if isinstance(reported, Met):
            self.registry.post_to(job, events.RanksMet(now_s, generation))
            return
        waiting, missing = tuple(map(Rank, reported.waiting)), tuple(map(Rank, reported.missing))
        self.registry.post_to(job, events.RanksWaited(now_s, generation, waiting, missing))
