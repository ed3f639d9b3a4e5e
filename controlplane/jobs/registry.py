"""All jobs of one term, each with a runner: taken over from the records at its start, or submitted afterwards.

A job's world continues without a master; the next leader reads the records and takes the job over.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

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
from messages.decoding import NotStorable
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
        keep_jobs: int,
    ) -> None:
        """`patient`: the bucket with longer timeouts, for the start. `keep_jobs`: ended jobs that stay listed."""
        self.jobs: dict[JobName, JobRunner] = {}
        self.removing: set[JobName] = set()
        """Jobs whose records this master deletes now and does not restore."""
        self.is_over = False
        """The term is over: new events and jobs are for the next leader."""
        self._being_made: set[JobName] = set()
        self._unreadable: dict[JobName, str] = {}
        """Jobs whose records cannot be read, and why."""
        self._context = context
        self._patient = patient
        self._starter = JobStarter(context, tools, books)
        self._books = books
        self._capacity = tools.capacity
        self._keep_jobs = keep_jobs
        self._forgetting = asyncio.Lock()
        """Serializes removals: a second one could remove a new job whose name the first has just freed."""
        self._tasks: asyncio.TaskGroup | None = None
        self._log = logger(epoch=context.leadership.epoch)

    async def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Takes over all stored jobs, and then those that another master still stores."""
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
        """True if the job has a runner or is being made now."""
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
        """True if the cloud still has machines of the job."""
        return not self._capacity.is_settled(runner.name)

    def remembered(self) -> tuple[records.RememberedJob, ...]:
        """All jobs with the records that KV must have of them."""
        return tuple(
            records.RememberedJob(runner.state.spec, runner.state.record, self._books.known(runner.name))
            for runner in self.jobs.values()
            if runner.name not in self.removing
        )

    # Events for jobs

    def post(self, runner: JobRunner, event: events.JobEvent) -> None:
        """Posts an event. Starts the loop of a job that ended before this term, whose workers still report."""
        if not self.is_over:
            runner.start(self._group())
            runner.post(event)

    def post_to(self, name: JobName, event: events.JobEvent) -> None:
        """Posts an event of the job's allocator or store; dropped if the job ended before this term."""
        runner = self.jobs.get(name)
        if runner is not None and runner.has_loop:
            self.post(runner, event)

    # New jobs

    async def make(self, spec: JobSpec) -> None:
        """Raises `JobExists`, `SpecRefused`, `HandedOver` and `BusUnavailable`."""
        name, bucket = JobName(spec.name), self._context.bucket
        try:
            value = records.encode_spec(spec)
        except NotStorable as error:
            raise SpecRefused((str(error),)) from error
        if self.knows(name):
            raise JobExists(name)
        self._being_made.add(name)
        try:
            if await bucket.get(subjects.spec_key(name)) is None:
                await records.remove_rest(bucket, name)
                await records.remove_output(self._context.bus, name)
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
            stored = await records.read_whole_record(self._patient, name)
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
        self, job: Job, stored: records.StoredRecord | None = None, progress: ProgressTracker | None = None
    ) -> None:
        def adopt_again() -> None:
            self._soon(self._readopt(job.name), job.name)

        self.jobs[job.name] = self._starter.start(self._group(), job, stored, progress, adopt_again)

    async def _readopt(self, name: JobName) -> None:
        """Takes a job over again, because the previous master wrote its record after this one had read it."""
        runner = self.jobs.get(name)
        if runner is None:
            return
        self._log.warning("job_adopted_again", job=name)
        await runner.stop()
        await self._adopt_from_bus(name, runner.progress)
        if self.jobs.get(name) is runner:  # its records are gone or unreadable
            del self.jobs[name]
            self._books.close(name)
            self._capacity.stop_allocator(name)

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
        """Takes over a job that a previous master stored after this one had read the jobs."""
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

    # Removed jobs

    async def forget_oldest(self) -> None:
        """Removes the records of the oldest ended jobs, so that storage stays bounded.

        Jobs with workers or machines left are skipped: the next master must know that it has to remove those.
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
        """Removes an ended job and all that is stored of it, which frees its name. Raises `BusUnavailable`."""
        async with self._forgetting:
            if self.jobs.get(runner.name) is not runner:
                return
            await self._remove_records(runner)
            await records.remove_output(self._context.bus, runner.name)
            await self._let_go(runner)

    async def _remove_records(self, runner: JobRunner) -> None:
        """Removes the records of a job; no other code removes those of a job that this master runs.

        The spec goes first: without it the other records are no job.
        """
        self.removing.add(runner.name)
        try:
            await self._context.bucket.delete(subjects.spec_key(runner.name))
            self._books.close(runner.name)
            await records.remove_rest(self._context.bucket, runner.name)
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
