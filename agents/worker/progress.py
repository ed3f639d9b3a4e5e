"""Gathers the progress of trainers, so that a worker sends at most one message a second."""

from collections.abc import Iterable

from msgspec import structs

from messages.ids import Generation, JobName, Rank, WorkerId
from messages.measured import StepsMeasured
from messages.worlds import Progress, RankProgress, StepsCounted
from tradewind.protocol.steps import StepReport

REPORT_EVERY_S = 1.0


class ProgressBook:
    def __init__(self, job: JobName, worker: WorkerId) -> None:
        self._job = job
        self._worker = worker
        self._ranks: dict[tuple[Generation, Rank], RankProgress] = {}

    def add(
        self,
        generation: Generation,
        rank: Rank,
        reports: Iterable[StepReport],
        measured: StepsMeasured | None = None,
        counted: StepsCounted | None = None,
    ) -> None:
        known = self._ranks.get((generation, rank))
        for report in reports:
            known = _first(rank, report) if known is None else _added(known, report)
        if known is not None:
            self._ranks[generation, rank] = structs.replace(
                known, measured=measured or known.measured, counted=counted or known.counted
            )

    def take(self) -> list[Progress]:
        """Returns the reports since the last call, in one message for each generation."""
        taken, self._ranks = self._ranks, {}
        return [
            Progress(
                job=self._job,
                worker=self._worker,
                generation=generation,
                ranks=tuple(progress for (of, _), progress in sorted(taken.items()) if of == generation),
            )
            for generation in sorted({generation for generation, _ in taken})
        ]


def _first(rank: Rank, report: StepReport) -> RankProgress:
    return RankProgress(
        rank=rank,
        first_step=report.step,
        last_step=report.step,
        loss=report.loss,
        nonfinite=report.nonfinite,
        samples=report.samples or 0,
        first_at=report.at,
        last_at=report.at,
    )


def _added(known: RankProgress, report: StepReport) -> RankProgress:
    is_silent = report.loss is None and not report.nonfinite
    return structs.replace(
        known,
        last_step=report.step,
        loss=known.loss if is_silent else report.loss,
        nonfinite=known.nonfinite if is_silent else report.nonfinite,
        samples=known.samples + (report.samples or 0),
        last_at=report.at,
    )
