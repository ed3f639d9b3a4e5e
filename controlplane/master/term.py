"""The parts that run while a master leads, wired once.

Jobs outlive a term: the next leader adopts them.
"""

import asyncio

from controlplane.allocator.effects import Place
from controlplane.api.service import JobService
from controlplane.capacity.interface import JobCapacity
from controlplane.capacity.translation import placement_changed
from controlplane.job import events
from controlplane.jobs.budgets import Budgets
from controlplane.jobs.cluster_counts import WantedBook
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
        self._wanted = WantedBook(context.bucket, context.may_act)
        tools = ShellTools(self._stores, self._wanted, capacity)
        self.registry = JobRegistry(context, patient, tools, books, capacity, keep_jobs)
        self.ingest = Ingest(context, self.registry, books, capacity)
        self.budgets = Budgets(context, self.registry, books, capacity)
        self.service = JobService(context, self.registry, self.ingest, self.budgets, capacity, about)

    async def run(self, started: asyncio.Event) -> None:
        """Until cancelled. Jobs continue: nothing here tells them to end."""
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
        tasks.create_task(self._wanted.run(), name="wanted")
        await self.registry.begin(tasks)
        await self.ingest.listen()
        tasks.create_task(self.budgets.run(), name="budgets")
        tasks.create_task(Guard(self.context, self.registry).run(), name="guard")
        self.context.announce_fleet("master_started", f"master {self._name} leads", jobs=self.registry.live)

    async def drain(self, timeout_s: float) -> None:
        self.context.announce_fleet("master_stopped", f"master {self._name} ends; jobs go on without it")
        await self.context.announcer.drain(timeout_s)

    def place(self, job: JobName, place: Place) -> None:
        """The job's allocator has decided where its workers are to be."""
        self.registry.post_to(job, placement_changed(place, self.context.now_s()))

    @property
    def _name(self) -> str:
        return self.context.bus.settings.name

    def _on_store_lost(self, job: JobName) -> None:
        self.registry.post_to(job, events.StoreLost(self.context.now_s()))

    def _on_ranks(self, job: JobName, told: Waiting | Met) -> None:
        now_s, generation = self.context.now_s(), Generation(told.generation)
        if isinstance(told, Met):
            self.registry.post_to(job, events.RanksMet(now_s, generation))
            return
        waiting, missing = tuple(map(Rank, told.waiting)), tuple(map(Rank, told.missing))
        self.registry.post_to(job, events.RanksWaited(now_s, generation, waiting, missing))
