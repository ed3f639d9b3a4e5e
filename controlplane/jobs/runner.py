"""Runs one job: its role loop, its progress, and a way to wait for its decisions."""

import asyncio
from collections.abc import Callable, Sequence

from controlplane.job.decide import decide
from controlplane.job.effects import JobEffect
from controlplane.job.events import FellBehind, JobEvent, Ticked
from controlplane.job.live.trainers import lives_on
from controlplane.job.state import Job
from controlplane.jobs.cluster_views import JobFeed
from controlplane.jobs.errors import NotRecorded
from controlplane.jobs.measures import Measures
from controlplane.jobs.progress import FellBack, ProgressTracker, fell_back, why_fell_back
from controlplane.jobs.shell import JobShell
from messages.ids import Generation, JobName
from messages.records import Record
from messages.worlds import Progress
from runtime.clock import Clock
from runtime.decision import Decision
from runtime.logs import WhyLog, logger
from runtime.role import BATCH_AT_MOST, RoleLoop

DECISION_TIMEOUT_S = 2.0
"""Seconds that a request waits for its decision."""

JobObserver = Callable[[Sequence[JobEvent], Decision[Job, JobEffect]], None]
Reported = tuple[float, Progress]
"""The sender's wall time in Unix seconds, and its message."""


class JobRunner:
    def __init__(
        self,
        job: Job,
        shell: JobShell,
        clock: Clock,
        progress: ProgressTracker | None = None,
        observers: Sequence[JobObserver] = (),
    ) -> None:
        self.name: JobName = job.name
        self.progress = progress or ProgressTracker()
        self.measures = Measures()
        self.clusters = JobFeed(job.name)
        self._fell_back: FellBack | None = None
        self.listeners: set[Callable[[Reported], None]] = set()
        """Called with every progress message."""
        self._loop: RoleLoop[Job, JobEvent, JobEffect] = RoleLoop(
            f"job/{job.name}",
            job,
            decide,
            shell,
            Ticked,
            clock,
            [self._on_decision, *observers],
            batch_at_most=BATCH_AT_MOST,
            behind=FellBehind,
        )
        self._task: asyncio.Task[None] | None = None
        self._decided = asyncio.Event()
        self._log_why = WhyLog(logger(job=job.name), "job_decided")

    @property
    def state(self) -> Job:
        return self._loop.state

    @property
    def ended(self) -> bool:
        return self.state.record.phase.ended

    @property
    def unsettled(self) -> bool:
        """True if workers of the job may still exist."""
        return bool(self.state.workers) or any(cluster.keeps for cluster in self.state.clusters.values())

    @property
    def longest_step_s(self) -> float:
        return self.measures.longest_step_s(self.state.workers)

    @property
    def has_loop(self) -> bool:
        return self._task is not None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        if self._task is None:
            self._task = tasks.create_task(self._loop.run(), name=f"job/{self.name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def post(self, event: JobEvent) -> None:
        self._loop.post(event)

    def report(self, at: float, progress: Progress) -> FellBack | None:
        """Learns a report. Returns the steps that a restarted script repeats, with its first report after a restart."""
        is_first = self.progress.is_first_of(progress.generation)
        if is_first:
            restarted = self._was_restarted_in(progress.generation)
            self._fell_back = fell_back(self.progress.generations, progress) if restarted else None
        self.progress.learn(progress)
        for listener in tuple(self.listeners):
            listener((at, progress))
        return self._fell_back if is_first else None

    @property
    def warning(self) -> str:
        """A warning while the script repeats steps; empty otherwise."""
        fallen, step = self._fell_back, self.progress.step
        if fallen is None or step is None or step > fallen.reached or self.ended:
            return ""
        return f"{fallen.text}; {self.why_fell_back(fallen)}"

    def why_fell_back(self, fallen: FellBack) -> str:
        return why_fell_back(fallen, self.state.spec.launch, uses_sdk=lives_on(self.state))

    def _was_restarted_in(self, generation: Generation) -> bool:
        """True if all trainers of the generation are new processes, and not the first of this job."""
        world = self.state.record.assignment
        return world is not None and world.generation == generation and world.live is None and world.restarts > 0

    async def until_saved(self, holds: Callable[[Record], bool]) -> None:
        """Waits until a record that satisfies `holds` is saved, or the job has ended. Raises `NotRecorded`."""
        try:
            async with asyncio.timeout(DECISION_TIMEOUT_S):
                while not self._is_saved(holds):
                    await self._decided.wait()
        except TimeoutError:
            raise NotRecorded(self.name) from None

    async def until_settled(self) -> bool:
        """Waits until no worker of the job is left. False after `DECISION_TIMEOUT_S`."""
        try:
            async with asyncio.timeout(DECISION_TIMEOUT_S):
                while self.unsettled:
                    await self._decided.wait()
        except TimeoutError:
            return False
        return True

    def _is_saved(self, holds: Callable[[Record], bool]) -> bool:
        saved = self.state.storage.saved
        return saved is not None and (saved.phase.ended or holds(saved))

    def _on_decision(self, _batch: Sequence[JobEvent], decision: Decision[Job, JobEffect]) -> None:
        record = decision.state.record
        self._log_why(decision.why, phase=record.phase, generation=record.generation)
        self._decided.set()
        self._decided = asyncio.Event()
