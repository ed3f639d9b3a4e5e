"""Progress of one job, as its trainers report it: newest step, loss and throughput, and a summary of each generation.

Reads no clock: all times are those of the ranks. Memory is bounded, and the oldest entries are dropped first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from messages.events import Event
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.jobs import Launch
from messages.worlds import Progress, RankProgress, StepsCounted

GENERATIONS_AT_MOST = 200
WORKERS_AT_MOST = 10_000
RANKS_AT_MOST = 100_000


@dataclass(frozen=True, slots=True)
class GenerationProgress:
    generation: Generation
    first_step: int
    last_step: int
    samples: int
    first_at: float
    last_at: float
    """Unix seconds on the ranks' clocks."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    step: int
    loss: float | None
    samples_per_s: float | None = None
    nonfinite: bool = False
    """Its newest loss is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class _RankNow:
    """A rank of the newest generation."""

    step: int
    at: float
    loss: float | None
    samples_per_s: float | None
    nonfinite: bool


class ProgressTracker:
    def __init__(self) -> None:
        self.workers: dict[WorkerId, WorkerProgress] = {}
        self._generations: dict[Generation, GenerationProgress] = {}
        self._newest = Generation(-1)
        self._ranks: dict[Rank, _RankNow] = {}
        self.counted = StepsCounted()
        """Counts of the whole run by trainers with the SDK."""

    @property
    def generations(self) -> tuple[GenerationProgress, ...]:
        return tuple(self._generations[generation] for generation in sorted(self._generations))

    def is_first_of(self, generation: Generation) -> bool:
        """True if neither it nor a newer generation was reported yet."""
        return generation > self._newest

    @property
    def step(self) -> int | None:
        """Newest step of the newest generation; it decreases when a script resumes from a checkpoint."""
        return max((rank.step for rank in self._ranks.values()), default=None)

    @property
    def loss(self) -> float | None:
        """Mean loss of the ranks that reported the newest step; with the SDK all report the same."""
        if self.is_nonfinite:
            return None
        newest = self.step
        known = [rank.loss for rank in self._ranks.values() if rank.loss is not None and rank.step == newest]
        return sum(known) / len(known) if known else None

    @property
    def is_nonfinite(self) -> bool:
        """True if a rank reports a NaN or infinite loss for the newest step."""
        newest = self.step
        return any(rank.nonfinite and rank.step == newest for rank in self._ranks.values())

    @property
    def samples_per_s(self) -> float | None:
        known = [rank.samples_per_s for rank in self._ranks.values() if rank.samples_per_s is not None]
        return sum(known) if known else None

    def learn(self, report: Progress) -> None:
        if not report.ranks:
            return
        self._learn_generation(report)
        if report.generation < self._newest:
            return
        if report.generation > self._newest:
            self._newest = report.generation
            self._ranks.clear()
        for rank in report.ranks:
            if rank.rank in self._ranks or len(self._ranks) < RANKS_AT_MOST:
                self._learn_rank(rank)
        self.counted = max(report.ranks, key=lambda rank: rank.last_step).counted or self.counted
        self._learn_worker(report)

    def _learn_generation(self, report: Progress) -> None:
        """Learns a generation, even an older one, because its last report may come late."""
        known = self._generations.get(report.generation)
        for rank in report.ranks:
            if known is None:
                known = GenerationProgress(
                    report.generation, rank.first_step, rank.last_step, rank.samples, rank.first_at, rank.last_at
                )
                continue
            known = replace(
                known,
                first_step=min(known.first_step, rank.first_step),
                last_step=max(known.last_step, rank.last_step),
                samples=known.samples + rank.samples,
                first_at=min(known.first_at, rank.first_at),
                last_at=max(known.last_at, rank.last_at),
            )
        if known is not None:
            self._generations[report.generation] = known
        while len(self._generations) > GENERATIONS_AT_MOST:
            del self._generations[min(self._generations)]

    def _learn_rank(self, rank: RankProgress) -> None:
        before = self._ranks.get(rank.rank)
        is_silent = rank.loss is None and not rank.nonfinite and before is not None
        loss = before.loss if before is not None and is_silent else rank.loss
        nonfinite = before.nonfinite if before is not None and is_silent else rank.nonfinite
        self._ranks[rank.rank] = _RankNow(rank.last_step, rank.last_at, loss, _samples_per_s(rank, before), nonfinite)

    def _learn_worker(self, report: Progress) -> None:
        newest = max(report.ranks, key=lambda rank: rank.last_step)
        self.workers.pop(report.worker, None)
        rates = [self._ranks[rank.rank].samples_per_s for rank in report.ranks if rank.rank in self._ranks]
        known = [rate for rate in rates if rate is not None]
        rate = sum(known) if known else None
        self.workers[report.worker] = WorkerProgress(newest.last_step, newest.loss, rate, newest.nonfinite)
        while len(self.workers) > WORKERS_AT_MOST:
            del self.workers[next(iter(self.workers))]


def _samples_per_s(rank: RankProgress, before: _RankNow | None) -> float | None:
    """Throughput since the previous report, or between the first and last step of the first report."""
    if before is not None:
        seconds = rank.last_at - before.at
        return rank.samples / seconds if seconds > 0 else before.samples_per_s
    steps = rank.last_step - rank.first_step + 1
    seconds = rank.last_at - rank.first_at
    return rank.samples * (steps - 1) / steps / seconds if steps > 1 and seconds > 0 else None


# Steps that a script repeats after a restart, as its reports show them.

OLD_CHECKPOINT = "its newest checkpoint is older than its last step"


@dataclass(frozen=True, slots=True)
class FellBack:
    generation: Generation
    first_step: int
    reached: int
    """The last step before the restart."""
    from_the_start: bool
    """It did not resume, but began at its very first step."""

    @property
    def text(self) -> str:
        steps = self.reached - self.first_step + 1
        how = f"began again at step {self.first_step}" if self.from_the_start else f"resumed at step {self.first_step}"
        repeated = f"repeats {steps} steps" if steps != 1 else "repeats 1 step"
        return f"the script {how} after a restart and {repeated}"


def fell_back(before: Iterable[GenerationProgress], report: Progress) -> FellBack | None:
    """Steps that a restarted script repeats, or None. `report` is the first of its generation."""
    known = [progress for progress in before if progress.generation < report.generation]
    if not known or not report.ranks:
        return None
    first_step = min(rank.first_step for rank in report.ranks)
    reached = max(progress.last_step for progress in known)
    if first_step > reached:
        return None
    from_the_start = first_step <= min(progress.first_step for progress in known)
    return FellBack(report.generation, first_step, reached, from_the_start)


def event_of_fallback(job: JobName, fallen: FellBack, reason: str) -> Event:
    fields = {"generation": fallen.generation, "first_step": fallen.first_step, "reached": fallen.reached}
    return Event(job, "progress_fell_back", fallen.text, reason, {**fields})


def why_fell_back(fallen: FellBack, launch: Launch, *, uses_sdk: bool) -> str:
    if not fallen.from_the_start:
        return OLD_CHECKPOINT
    if uses_sdk:
        return "all workers with its state were lost; tradewind.Run(checkpoints=...) resumes from the newest checkpoint"
    if launch.restart_args:
        return "it did not resume in spite of launch.restart_args; check that it finds its checkpoint"
    return (
        "it did not resume from a checkpoint; to make it resume, set its arguments for that in "
        "launch.restart_args, or with tradewind run --restart-args"
    )
