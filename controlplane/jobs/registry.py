"""All jobs of one term: adopted from the records at its start, made by people afterwards, each with a runner.

A job's world continues without any master: the next one reads the records and adopts.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from controlplane.capacity.interface import JobCapacity
from controlplane.job import events
from controlplane.job.state import Job, adopted_job, new_job
from controlplane.jobs import records
from controlplane.jobs.context import TermContext
from controlplane.jobs.errors import HandedOver, JobExists, JobUnknown, JobUnreadable, SpecRefused
from controlplane.jobs.progress import ProgressTracker
from controlplane.jobs.runner import JobRunner
from controlplane.jobs.shell import ShellTools
from controlplane.jobs.starter import JobStarter
from controlplane.ledger.books import Books
from messages import subjects
from messages.decoding import Unreadable
from messages.ids import JobName
from messages.jobs import JobSpec
from runtime.bus import Bucket, Entry
from runtime.errors import BusUnavailable, Conflict
from runtime.logs import logger

ADOPT_RETRY_S = 1.0


class JobRegistry:
    def __init__(
        self,
        context: TermContext,
        patient: Bucket,
        tools: ShellTools,
        books: Books,
        capacity: JobCapacity,
        keep_jobs: int,
    ) -> None:
        """`patient`: the bucket with longer timeouts, for the start. `keep_jobs`: ended jobs that stay listed."""
        self.jobs: dict[JobName, JobRunner] = {}
        self.removing: set[JobName] = set()
        """Jobs whose records this master is deleting: nobody writes them again."""
        self.is_over = False
        """What still comes in is for the next leader."""
        self._being_made: set[JobName] = set()
        self._unreadable: dict[JobName, str] = {}
        """Jobs whose records cannot be read, and why."""
        self._context = context
        self._patient = patient
        self._starter = JobStarter(context, tools, books, capacity)
        self._books = books
        self._capacity = capacity
        self._keep_jobs = keep_jobs
        self._forgetting = asyncio.Lock()
        """By two at once, one might forget a new job of the name that the other has just made free."""
        self._tasks: asyncio.TaskGroup | None = None
        self._log = logger(epoch=context.leadership.epoch)

    async def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Adopts all jobs that the records tell of, and from then on those that come to them."""
        self._tasks = tasks
        for key, entry in (await self._patient.entries(subjects.JOB_SPECS)).items():
            name = subjects.parse_spec_key(key)
            if name is not None:
                await self._adopt(name, entry.value)
        await self._patient.watch(subjects.JOB_SPECS, self._on_spec)

    # Questions

    def job(self, name: str) -> JobRunner:
        """Raises `JobUnknown` and `JobUnreadable`."""
        runner = self.jobs.get(JobName(name))
        if runner is None:
            why = self._unreadable.get(JobName(name))
            raise JobUnreadable(name, why) if why is not None else JobUnknown(name)
        return runner

    def knows(self, name: JobName) -> bool:
        """There is a runner for it, or it is being made just now."""
        return name in self.jobs or name in self._being_made

    @property
    def unread(self) -> tuple[JobName, ...]:
        """Jobs whose stored records are unread or unreadable."""
        return tuple(sorted(self._being_made | self._unreadable.keys()))

    @property
    def live(self) -> int:
        """Number of jobs that have not ended."""
        return sum(not runner.ended for runner in self.jobs.values())

    def holds_machines(self, runner: JobRunner) -> bool:
        """The cloud still has something of it."""
        return not self._capacity.is_settled(runner.name)

    def stored(self) -> tuple[records.Kept, ...]:
        """All that is stored of each job, as it should be."""
        return tuple(
            records.Kept(runner.state.spec, runner.state.record, self._books.known(runner.name))
            for runner in self.jobs.values()
            if runner.name not in self.removing
        )

    # Events for jobs

    def post(self, runner: JobRunner, event: events.JobEvent) -> None:
        """A job that had ended before this term began gets a loop when somebody of it is still heard."""
        if not self.is_over:
            runner.start(self._group())
            runner.post(event)

    def post_to(self, name: JobName, event: events.JobEvent) -> None:
        """From the job's allocator or store. One that had ended before this term began needs no loop for it."""
        runner = self.jobs.get(name)
        if runner is not None and runner.has_loop:
            self.post(runner, event)

    # Jobs that come

    async def make(self, spec: JobSpec) -> None:
        """Raises `JobExists`, `SpecRefused`, `HandedOver` and `BusUnavailable`."""
        name, bucket = JobName(spec.name), self._context.bucket
        try:
            value = records.encode_spec(spec)
        except Unreadable as error:
            raise SpecRefused((str(error),)) from error
        if self.knows(name):
            raise JobExists(name)
        self._being_made.add(name)
        try:
            if await bucket.get(subjects.spec_key(name)) is None:
                await records.remove_leavings(bucket, name)
                await records.remove_words(self._context.bus, name)
            await bucket.create(subjects.spec_key(name), value)
            if self.is_over:
                raise HandedOver(name)
            self._hold(self._new_job(spec))
        except Conflict:
            raise JobExists(name) from None
        finally:
            self._being_made.discard(name)

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
            self._hold(replace(self._new_job(spec), is_submission_known=False), progress=progress)
            return
        clock, record = self._context.clock, stored.record
        job = adopted_job(
            spec,
            record,
            epoch=self._context.leadership.epoch,
            at_s=clock.monotonic_s(),
            age_s=clock.wall_s() - record.submitted_at,
        )
        self._log.info("job_adopted", job=name, phase=job.record.phase, generation=job.record.generation)
        self._hold(job, stored, progress)

    def _new_job(self, spec: JobSpec) -> Job:
        clock, epoch = self._context.clock, self._context.leadership.epoch
        return new_job(spec, epoch=epoch, at_s=clock.monotonic_s(), submitted_at=clock.wall_s())

    def _hold(
        self, job: Job, stored: records.StoredWorld | None = None, progress: ProgressTracker | None = None
    ) -> None:
        def adopt_again() -> None:
            self._soon(self._readopt(job.name), job.name)

        self.jobs[job.name] = self._starter.start(self._group(), job, stored, progress, adopt_again)

    async def _readopt(self, name: JobName) -> None:
        """The master before this one wrote the record after it was read here: begin again from what it wrote."""
        runner = self.jobs.get(name)
        if runner is None:
            return
        self._log.warning("job_adopted_again", job=name)
        await runner.stop()
        await self._adopt_from_bus(name, runner.progress)
        if self.jobs.get(name) is runner:  # its records are gone or unreadable
            del self.jobs[name]
            self._books.close(name)
            self._capacity.let_go(name)

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

    # Jobs that go

    async def forget_oldest(self) -> None:
        """What is stored of ended jobs is bounded, or one day no record could be saved any more.

        Not of those of which anything is left: the next master would not know that it has to be removed.
        """
        async with self._forgetting:
            await self._forget(self._oldest())

    def _oldest(self) -> list[JobRunner]:
        ended = [
            runner
            for runner in self.jobs.values()
            if runner.ended and not (runner.unsettled or self.holds_machines(runner))
        ]
        excess = max(0, len(ended) - self._keep_jobs)
        return sorted(ended, key=lambda runner: runner.state.record.submitted_at)[:excess]

    async def _forget(self, oldest: list[JobRunner]) -> None:
        for runner in oldest:
            if not self._context.may_act():
                return
            try:
                await self._remove_records(runner)
            except BusUnavailable as error:
                self._log.warning("job_not_forgotten", job=runner.name, error=str(error))
                return
            await self._let_go(runner)

    async def remove(self, runner: JobRunner) -> None:
        """An ended job with all that is stored of it. Its name is free afterwards. Raises `BusUnavailable`."""
        async with self._forgetting:
            if self.jobs.get(runner.name) is not runner:
                return
            await self._remove_records(runner)
            await records.remove_words(self._context.bus, runner.name)
            await self._let_go(runner)

    async def _remove_records(self, runner: JobRunner) -> None:
        """The only place where a master removes the records of a job that it runs.

        The spec is deleted first: without it the other records are no job, and cannot run again.
        """
        self.removing.add(runner.name)
        try:
            await self._context.bucket.delete(subjects.spec_key(runner.name))
            self._books.close(runner.name)
            await records.remove_leavings(self._context.bucket, runner.name)
        except BusUnavailable:
            self.removing.discard(runner.name)
            raise

    async def _let_go(self, runner: JobRunner) -> None:
        self.jobs.pop(runner.name, None)
        self.removing.discard(runner.name)
        await runner.stop()

    # Tasks

    def _soon(self, work: Coroutine[Any, Any, None], name: JobName) -> None:
        if self.is_over:
            work.close()
        else:
            self._group().create_task(work, name=f"adopt/{name}")

    def _group(self) -> asyncio.TaskGroup:
        if self._tasks is None:
            raise RuntimeError("the term has not begun yet")
        return self._tasks
