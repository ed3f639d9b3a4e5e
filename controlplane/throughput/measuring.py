"""What a job's steps need, from what its trainers measured of late.

Of each worker a fading sum is kept; of workers with the same accelerator the one in the middle counts, so that a slow
machine among others changes nothing. Times are those of whoever tells: no clock is read here. What is kept is bounded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import Final

from messages.ids import WorkerId
from messages.measured import MeasuredCompute, MeasuredProfile, StepsMeasured

HALF_LIFE_S: Final = 30.0
HALF_LIFE_STEPS: Final = 20.0
"""What was measured fades by half in so much time, but never faster than in so many steps."""
ENOUGH_STEPS: Final = 8
"""Of one rank: fewer say nothing."""
FRESH_S: Final = 60.0
FRESH_STEPS: Final = 10.0
"""A worker that was not heard for longer than both says nothing any more."""
WORKERS_AT_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is, as far as it is known."""

    node: str = ""
    accelerator: str = ""
    """As the catalog calls it."""


@dataclass(frozen=True, slots=True)
class _Worker:
    place: Place
    heard_s: float
    seen: float = 0.0
    """Steps of a rank, all of them; the others fade."""
    steps: float = 0.0
    samples: float = 0.0
    seconds: float = 0.0
    computed_s: float = 0.0
    waited_s: float = 0.0

    @property
    def says_something(self) -> bool:
        return self.seen >= ENOUGH_STEPS

    @property
    def step_s(self) -> float:
        return self.seconds / self.steps

    @property
    def compute(self) -> MeasuredCompute:
        rest_s = max(0.0, self.seconds - self.computed_s - self.waited_s)
        return MeasuredCompute(self.computed_s / self.samples, rest_s / self.steps)

    def is_fresh(self, now_s: float) -> bool:
        return now_s - self.heard_s <= max(FRESH_S, FRESH_STEPS * self.step_s)


class Measuring:
    def __init__(self) -> None:
        self._workers: dict[WorkerId, _Worker] = {}
        self._compute: dict[str, MeasuredCompute] = {}
        """Also of accelerators that the job has left."""
        self._gradient_bytes = 0
        self._global_batch = 0

    def hear(self, worker: WorkerId, place: Place, ranks: Iterable[StepsMeasured | None], at_s: float) -> None:
        told = [each for each in ranks if each is not None]
        for each in told:
            self._gradient_bytes = each.gradient_bytes or self._gradient_bytes
            self._global_batch = each.global_batch or self._global_batch
        measured = [each for each in told if each.steps and each.seconds > 0]
        if not measured:
            return
        known = self._workers.pop(worker, None)
        if known is None or known.place != place:
            known = _Worker(place, at_s)
        self._workers[worker] = _gone_on(known, measured, at_s)
        while len(self._workers) > WORKERS_AT_MOST:
            del self._workers[next(iter(self._workers))]

    def profile(self, now_s: float) -> MeasuredProfile | None:
        """Of late; when nobody trains any more, as it last was. None before anybody has told anything."""
        if not self._gradient_bytes and not self._global_batch:
            return None
        everybody = self._telling(now_s) or [each for each in self._workers.values() if each.says_something]
        at_work = [each for each in everybody if each.samples > 0 and each.computed_s > 0]
        for accelerator in sorted({each.place.accelerator for each in at_work}):
            self._compute.pop(accelerator, None)
            self._compute[accelerator] = _middle([each for each in at_work if each.place.accelerator == accelerator])
        return MeasuredProfile(
            gradient_bytes=self._gradient_bytes,
            global_batch=self._global_batch,
            step_s=median(each.step_s for each in everybody) if everybody else 0.0,
            waiting=_share(sum(each.waited_s for each in everybody), sum(each.seconds for each in everybody)),
            compute=dict(self._compute),
        )

    def use(self, now_s: float) -> dict[str, float]:
        """By node: of the time that the ranks on it computed or waited for others, the part that they computed."""
        by_node: dict[str, tuple[float, float]] = {}
        for each in self._telling(now_s):
            if each.place.node and each.computed_s + each.waited_s > 0:
                computed_s, waited_s = by_node.get(each.place.node, (0.0, 0.0))
                by_node[each.place.node] = computed_s + each.computed_s, waited_s + each.waited_s
        return {node: _share(computed_s, computed_s + waited_s) for node, (computed_s, waited_s) in by_node.items()}

    def _telling(self, now_s: float) -> list[_Worker]:
        return [each for each in self._workers.values() if each.says_something and each.is_fresh(now_s)]


def _gone_on(known: _Worker, ranks: list[StepsMeasured], at_s: float) -> _Worker:
    steps, seconds = sum(each.steps for each in ranks), sum(each.seconds for each in ranks)
    kept = 0.5 ** min(seconds / len(ranks) / HALF_LIFE_S, steps / len(ranks) / HALF_LIFE_STEPS)
    return replace(
        known,
        heard_s=at_s,
        seen=known.seen + steps / len(ranks),
        steps=kept * known.steps + steps,
        samples=kept * known.samples + sum(each.samples for each in ranks),
        seconds=kept * known.seconds + seconds,
        computed_s=kept * known.computed_s + sum(each.computed_s for each in ranks),
        waited_s=kept * known.waited_s + sum(each.waited_s for each in ranks),
    )


def _middle(workers: list[_Worker]) -> MeasuredCompute:
    """Of two, the faster one."""
    figures = [each.compute for each in workers]
    return MeasuredCompute(
        median_low(each.seconds_per_sample for each in figures), median_low(each.seconds_per_step for each in figures)
    )


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0
