"""Starts what a job of this term needs: its runner, its ledger and its allocator."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.allocator.demand import demand_of
from controlplane.capacity.interface import JobCapacity
from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent
from controlplane.job.state import Job
from controlplane.job.wants import want_nodes
from controlplane.jobs.context import TermContext
from controlplane.jobs.progress import ProgressTracker
from controlplane.jobs.records import StoredWorld
from controlplane.jobs.runner import JobRunner
from controlplane.jobs.shell import JobShell, ShellTools
from controlplane.ledger.books import Books
from messages.records import Phase
from runtime.decision import Decision

MEASURED_S = 10.0
"""Seconds that a job that trains already may take to report what its steps need, before a plan is made without."""


@dataclass(frozen=True, slots=True)
class JobStarter:
    context: TermContext
    tools: ShellTools
    books: Books
    capacity: JobCapacity

    def start(
        self,
        tasks: asyncio.TaskGroup,
        job: Job,
        stored: StoredWorld | None,
        progress: ProgressTracker | None,
        adopt_again: Callable[[], None],
    ) -> JobRunner:
        """The allocator begins with the job's first want, so the job's core has to know that it was sent."""
        job, [first] = want_nodes(job, self.context.now_s())
        shell = JobShell(job.name, self.context, self.tools, stored, adopt_again)
        observers = [self._hear_decision] if self.capacity.has_fleet else []
        runner = JobRunner(job, shell, self.context.clock, progress, observers)
        self.books.open(job)
        if not runner.ended:
            runner.start(tasks)
        capacity = job.spec.capacity
        self.capacity.hold(
            tasks,
            job.name,
            first.want,
            demand=demand_of(job.spec),
            idle_timeout_s=capacity.idle_timeout_s if capacity is not None else None,
            measured_within_s=MEASURED_S if job.record.phase is Phase.RUNNING else 0.0,
        )
        return runner

    def _hear_decision(self, _batch: Sequence[JobEvent], decision: Decision[Job, JobEffect]) -> None:
        self.books.hear(decision.state)
