"""Starts the runner, the ledger and the allocator of a job in this term."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.allocator.demand import demand_of
from controlplane.job.effects import JobEffect
from controlplane.job.events import JobEvent
from controlplane.job.state import Job
from controlplane.job.wants import want_nodes
from controlplane.jobs.context import TermContext
from controlplane.jobs.progress import ProgressTracker
from controlplane.jobs.records import StoredRecord
from controlplane.jobs.runner import JobRunner
from controlplane.jobs.shell import JobShell, ShellTools
from controlplane.ledger.books import Books
from messages.records import Phase
from runtime.decision import Decision

MEASURED_S = 10.0
"""Seconds that the first plan of a running job waits for measurements of its steps."""


@dataclass(frozen=True, slots=True)
class JobStarter:
    context: TermContext
    tools: ShellTools
    books: Books

    def start(
        self,
        tasks: asyncio.TaskGroup,
        job: Job,
        stored: StoredRecord | None,
        progress: ProgressTracker | None,
        adopt_again: Callable[[], None],
    ) -> JobRunner:
        """Starts the job. Its allocator gets the first request for nodes here, so the core must know it is sent."""
        job, [first] = want_nodes(job, self.context.now_s())
        shell = JobShell(job.name, self.context, self.tools, stored, adopt_again)
        observers = [self._hear_decision] if self.tools.capacity.has_fleet else []
        runner = JobRunner(job, shell, self.context.clock, progress, observers)
        self.books.open(job)
        if not runner.ended:
            runner.start(tasks)
        capacity = job.spec.capacity
        self.tools.capacity.start_allocator(
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
