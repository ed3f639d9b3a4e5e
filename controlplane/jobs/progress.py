"""What the trainers of one job have reported: the newest step, loss and throughput, and what each generation did.

It reads no clock: all times are those the ranks gave. What is kept is bounded, the oldest goes first.
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
    """Unix seconds, of the ranks' clocks."""


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
        """Of the whole run, as its trainers count (SDK)."""

    @property
    def generations(self) -> tuple[GenerationProgress, ...]:
        return tuple(self._generations[generation] for generation in sorted(self._generations))

    def is_first_of(self, generation: Generation) -> bool:
        """Nothing was reported of it, or of a newer one, yet."""
        return generation > self._newest

    @property
    def step(self) -> int | None:
        """Of the newest generation: a script that went back to its checkpoint shows it."""
        return max((rank.step for rank in self._ranks.values()), default=None)

    @property
    def loss(self) -> float | None:
        """The mean over the ranks that have told of the newest step; with the SDK all tell the same."""
        if self.is_nonfinite:
            return None
        newest = self.step
        known = [rank.loss for rank in self._ranks.values() if rank.loss is not None and rank.step == newest]
        return sum(known) / len(known) if known else None

    @property
    def is_nonfinite(self) -> bool:
        """Some rank says that the loss of the newest step is NaN or infinite."""
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
        """Also of an older generation: its last report may come late."""
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
    """Since the report before; within the first one, from its first step to its last."""
    if before is not None:
        seconds = rank.last_at - before.at
        return rank.samples / seconds if seconds > 0 else before.samples_per_s
    steps = rank.last_step - rank.first_step + 1
    seconds = rank.last_at - rank.first_at
    return rank.samples * (steps - 1) / steps / seconds if steps > 1 and seconds > 0 else None


# Steps that a script repeats after a restart, as its reports show them.


@dataclass(frozen=True, slots=True)
class FellBack:
    generation: Generation
    first_step: int
    reached: int
    """The last step before the restart."""
    from_the_start: bool
    """It did not resume, but began where it began the first time."""

    @property
    def text(self) -> str:
        steps = self.reached - self.first_step + 1
        how = f"began at step {self.first_step} again" if self.from_the_start else f"resumed at step {self.first_step}"
        repeated = f"{steps} steps are repeated" if steps != 1 else "1 step is repeated"
        return f"the script {how} after a restart: {repeated}"


def fell_back(before: Iterable[GenerationProgress], report: Progress) -> FellBack | None:
    """`report` is the first of its generation."""
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
        return "its newest checkpoint is older than its last step"
    if uses_sdk:
        return "all workers that had its state were lost; with checkpoints= a tradewind.Run resumes from the newest"
    if launch.restart_args:
        return "it did not resume, though launch.restart_args are given: see whether it finds its checkpoint"
    return (
        "it did not resume from a checkpoint; if it should, give the arguments that make it resume in "
        "launch.restart_args, or with tradewind run --restart-args"
    )
