"""What the trainers of one job measure of their steps: gathered, shown, and told to whoever plans, where it is news."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from controlplane.capacity.profiling import coarse, combined, is_news, knows_any
from controlplane.throughput.measuring import Measuring, WorkerPlace
from controlplane.throughput.profile import Profile
from controlplane.throughput.use import NodeUse
from messages.ids import WorkerId
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile
from messages.worlds import Progress

LOOK_S = 0.5
USE_S = 5.0
"""How often the utilisation of its nodes is told, where the job asks for some."""
SHARE_DIGITS = 3
WORKERS_AT_MOST = 1000
"""Workers whose longest step is remembered."""


@dataclass(frozen=True, slots=True)
class News:
    profile: Profile | None = None
    use: tuple[NodeUse, ...] = ()


class Measures:
    """It reads no clock: times are those of the receiver."""

    def __init__(self) -> None:
        self._measuring = Measuring()
        self._told: Profile | None = None
        self._looked_s = self._used_s = float("-inf")
        self._longest_s: dict[WorkerId, float] = {}

    def longest_step_s(self, workers: Collection[WorkerId]) -> float:
        """Seconds of the longest recent step that one of these workers reported; 0 if none did."""
        return max((self._longest_s.get(worker, 0.0) for worker in workers), default=0.0)

    def hear(self, report: Progress, place: WorkerPlace, at_s: float) -> None:
        told = [rank.measured.longest_s for rank in report.ranks if rank.measured is not None]
        if told:
            self._longest_s.pop(report.worker, None)
            self._longest_s[report.worker] = max(told)
            while len(self._longest_s) > WORKERS_AT_MOST:
                del self._longest_s[next(iter(self._longest_s))]
        self._measuring.hear(report.worker, place, (rank.measured for rank in report.ranks), at_s)

    def profile(self, now_s: float) -> MeasuredProfile | None:
        return self._measuring.profile(now_s)

    def news(self, spec: JobSpec, workers: Collection[WorkerId], now_s: float) -> News:
        """For a planned job, from the workers that it has; of others nobody asks."""
        if spec.capacity is None or now_s - self._looked_s < LOOK_S:
            return News()
        self._looked_s = now_s
        self._measuring.forget_all_but(workers)
        return News(self._profile_news(spec, now_s), self._use_news(spec, now_s))

    def _profile_news(self, spec: JobSpec, now_s: float) -> Profile | None:
        measured = self._measuring.profile(now_s)
        if measured is None or not knows_any(measured):
            return None
        found = coarse(combined(spec, measured))
        if not is_news(self._told, found, spec.workers.max * spec.workers.ranks):
            return None
        self._told = found
        return found

    def _use_news(self, spec: JobSpec, now_s: float) -> tuple[NodeUse, ...]:
        asked = spec.capacity is not None and spec.capacity.min_utilisation is not None
        if not asked or now_s - self._used_s < USE_S:
            return ()
        self._used_s = now_s
        return tuple(replace(each, share=round(each.share, SHARE_DIGITS)) for each in self._measuring.use(now_s))
