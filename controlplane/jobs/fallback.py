"""Steps that a script repeats after a restart, as its reports show them."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.jobs.progress import GenerationProgress
from messages.events import Event
from messages.ids import Generation, JobName
from messages.jobs import Launch
from messages.worlds import Progress


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


def event_of(job: JobName, fallen: FellBack, reason: str) -> Event:
    fields = {"generation": fallen.generation, "first_step": fallen.first_step, "reached": fallen.reached}
    return Event(job, "progress_fell_back", fallen.text, reason, {**fields})


def why(fallen: FellBack, launch: Launch, *, uses_sdk: bool) -> str:
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
