"""The measured profile of a job's steps, from the recent reports of its trainers.

Each report has means, so the newest one of a worker suffices, and a new master soon knows as much as the one before.
The median of the workers with the same accelerator counts: one slow machine changes nothing. This module reads no
clock, and its memory is bounded.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median, median_low
from typing import Final

from controlplane.throughput.use import FRESH_S, NodeUse
from messages.ids import ClusterName, WorkerId
from messages.measured import MeasuredCompute, MeasuredProfile, StepsMeasured

ENOUGH_STEPS: Final = 8
"""The fewest steps of a report that counts."""
FEWEST_SAMPLES: Final = 1e-3
"""Samples in a step: a rank that computes fewer has no share."""
FRESH_STEPS: Final = 10.0
"""A report is outdated after the time of so many steps, but not before `FRESH_S`."""
WORKERS_AT_MOST: Final = 10_000
UNKNOWN: Final = ""
"""The accelerator of a worker whose node is not known yet."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """The place of a worker, as far as it is known."""

    cluster: ClusterName
    node: str = ""
    accelerator: str = UNKNOWN
    """The catalog's name."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """The newest report of a worker: means over its ranks."""

    place: WorkerPlace
    heard_s: float
    samples: float
    step_s: float
    computed_s: float
    waited_s: float

    @property
    def compute(self) -> MeasuredCompute:
        rest_s = max(0.0, self.step_s - self.computed_s - self.waited_s)
        return MeasuredCompute(self.computed_s / self.samples, rest_s)

    @property
    def fresh_s(self) -> float:
        return max(FRESH_S, FRESH_STEPS * self.step_s)

    def is_fresh(self, now_s: float) -> bool:
        return now_s - self.heard_s <= self.fresh_s

    def use(self, now_s: float) -> NodeUse:
        share = _share(self.computed_s, self.computed_s + self.waited_s)
        return NodeUse(self.place.cluster, self.place.node, share, max(0.0, now_s - self.heard_s), self.fresh_s)


class Measuring:
    def __init__(self) -> None:
        self._workers: dict[WorkerId, _Worker] = {}
        """In the order of their last reports."""
        self._left: dict[str, MeasuredCompute] = {}
        """Accelerators that the job no longer uses, in the order in which it left them."""
        self._gradient_bytes = 0
        self._global_batch = 0

    def hear(self, worker: WorkerId, place: WorkerPlace, ranks: Iterable[StepsMeasured | None], at_s: float) -> None:
        reported = [each for each in ranks if each is not None]
        for each in reported:
            self._gradient_bytes = each.gradient_bytes or self._gradient_bytes
            self._global_batch = each.global_batch or self._global_batch
        enough = [each for each in reported if each.steps >= ENOUGH_STEPS and each.seconds > 0]
        if enough:
            self._workers.pop(worker, None)
            self._workers[worker] = _worker(place, enough, at_s)
            while len(self._workers) > WORKERS_AT_MOST:
                del self._workers[next(iter(self._workers))]

    def forget_all_but(self, workers: Collection[WorkerId]) -> None:
        """Forget all other workers, but keep the compute times of accelerators that no worker uses any more."""
        stay = {worker: each for worker, each in self._workers.items() if worker in workers}
        have = {each.place.accelerator for each in stay.values()}
        for accelerator, gone in self._at_work():
            if accelerator not in (*have, UNKNOWN):
                self._left.pop(accelerator, None)
                self._left[accelerator] = _middle(gone)
        self._workers = stay

    def profile(self, now_s: float) -> MeasuredProfile | None:
        """The recent profile, or the last known one if no worker trains now; None before the first report."""
        if not self._gradient_bytes and not self._global_batch:
            return None
        fresh = self._fresh(now_s)
        everybody = fresh or list(self._workers.values())
        return MeasuredProfile(
            gradient_bytes=self._gradient_bytes,
            global_batch=self._global_batch,
            step_s=median(each.step_s for each in everybody) if everybody else 0.0,
            waiting=_share(sum(each.waited_s for each in everybody), sum(each.step_s for each in everybody)),
            compute=self._compute(now_s, anybody_is_fresh=bool(fresh)),
        )

    def use(self, now_s: float) -> tuple[NodeUse, ...]:
        """The use of each node whose ranks computed or waited recently."""
        known = [each for each in self._fresh(now_s) if each.place.node and each.computed_s + each.waited_s > 0]
        return tuple({(each.place.cluster, each.place.node): each.use(now_s) for each in known}.values())

    def _compute(self, now_s: float, *, anybody_is_fresh: bool) -> dict[str, MeasuredCompute]:
        """Compute times by accelerator, the one with the newest report last."""
        found = dict(self._left)
        for accelerator, workers in self._at_work():
            fresh = [each for each in workers if each.is_fresh(now_s)]
            if fresh or accelerator != UNKNOWN or not anybody_is_fresh:
                found.pop(accelerator, None)
                found[accelerator] = _middle(fresh or workers)
        return found

    def _at_work(self) -> list[tuple[str, list[_Worker]]]:
        """Workers that compute, by accelerator, the one with the newest report last."""
        found: dict[str, list[_Worker]] = {}
        for each in self._workers.values():
            if each.samples >= FEWEST_SAMPLES and each.computed_s > 0:
                found.setdefault(each.place.accelerator, []).append(each)
        return sorted(found.items(), key=lambda one: (one[1][-1].heard_s, one[0]))

    def _fresh(self, now_s: float) -> list[_Worker]:
        return [each for each in self._workers.values() if each.is_fresh(now_s)]


def _worker(place: WorkerPlace, ranks: list[StepsMeasured], at_s: float) -> _Worker:
    return _Worker(
        place,
        at_s,
        samples=sum(each.samples for each in ranks) / len(ranks),
        step_s=sum(each.seconds for each in ranks) / len(ranks),
        computed_s=sum(each.computed_s for each in ranks) / len(ranks),
        waited_s=sum(each.waited_s for each in ranks) / len(ranks),
    )


def _middle(workers: list[_Worker]) -> MeasuredCompute:
    """The median; of two workers the faster one."""
    figures = [each.compute for each in workers]
    return MeasuredCompute(
        median_low(each.seconds_per_sample for each in figures), median_low(each.seconds_per_step for each in figures)
    )


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0
