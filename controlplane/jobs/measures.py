"""Collects what the trainers of one job measure about their steps, and reports significant changes to the planner."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from controlplane.planning.measured_profiles import coarse, combined, is_significant, knows_any
from controlplane.throughput.measuring import Measuring, WorkerPlace
from controlplane.throughput.profile import Profile
from controlplane.throughput.use import NodeUse
from messages.ids import WorkerId
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile
from messages.worlds import Progress

LOOK_S = 0.5
USE_S = 5.0
"""Seconds between reports of the utilisation of the job's nodes, if the job requires one."""
SHARE_DIGITS = 3
WORKERS_AT_MOST = 1000
"""Most workers whose longest step is remembered."""


@dataclass(frozen=True, slots=True)
class MeasuredChanges:
    profile: Profile | None = None
    use: tuple[NodeUse, ...] = ()


class Measures:
    """Measurements of one job. Reads no clock: times are those of the receiver."""

    def __init__(self) -> None:
        self._measuring = Measuring()
        self._reported: Profile | None = None
        self._looked_s = self._used_s = float("-inf")
        self._longest_s: dict[WorkerId, float] = {}

    def longest_step_s(self, workers: Collection[WorkerId]) -> float:
        """Seconds of the longest recent step that one of these workers reported; 0 if none did."""
        return max((self._longest_s.get(worker, 0.0) for worker in workers), default=0.0)

    def hear(self, report: Progress, place: WorkerPlace, at_s: float) -> None:
        reported = [rank.measured.longest_s for rank in report.ranks if rank.measured is not None]
        if reported:
            self._longest_s.pop(report.worker, None)
            self._longest_s[report.worker] = max(reported)
            while len(self._longest_s) > WORKERS_AT_MOST:
                del self._longest_s[next(iter(self._longest_s))]
        self._measuring.hear(report.worker, place, (rank.measured for rank in report.ranks), at_s)

    def profile(self, now_s: float) -> MeasuredProfile | None:
        return self._measuring.profile(now_s)

    def changes(self, spec: JobSpec, workers: Collection[WorkerId], now_s: float) -> MeasuredChanges:
        """Changes worth reporting, from these workers only; none for a job without a plan."""
        if spec.capacity is None or now_s - self._looked_s < LOOK_S:
            return MeasuredChanges()
        self._looked_s = now_s
        self._measuring.forget_all_but(workers)
        return MeasuredChanges(self._profile_change(spec, now_s), self._use_change(spec, now_s))

    def _profile_change(self, spec: JobSpec, now_s: float) -> Profile | None:
        measured = self._measuring.profile(now_s)
        if measured is None or not knows_any(measured):
            return None
        found = coarse(combined(spec, measured))
        if not is_significant(self._reported, found, spec.workers.max * spec.workers.ranks):
            return None
        self._reported = found
        return found

    def _use_change(self, spec: JobSpec, now_s: float) -> tuple[NodeUse, ...]:
        asked = spec.capacity is not None and spec.capacity.min_utilisation is not None
        if not asked or now_s - self._used_s < USE_S:
            return ()
        self._used_s = now_s
        return tuple(replace(each, share=round(each.share, SHARE_DIGITS)) for each in self._measuring.use(now_s))
