"""Operations of the cloud: each waits for its turn, is requested and polled until it ends, and has one outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from controlplane.clouds.gke.classify import OperationReport, call_outcome, operation_outcome
from controlplane.clouds.gke.failures import UNANSWERED, CallFailed, Code
from controlplane.clouds.gke.operation_queue import NoTurn, Turns
from controlplane.clouds.gke.settings import GkeSettings
from controlplane.clouds.outcomes import Busy, Outcome, Unfinished, Unreachable
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock, SystemClock

POLL_GROWTH = 1.5

Classify = Callable[[CallFailed, str], Outcome]
Watch = Callable[[OperationReport], Awaitable[Outcome | None]]
"""A check of a running operation. An outcome ends the wait; a `CallFailed` is ignored."""
WhenBusy = Callable[[Busy], Awaitable[Outcome]]
"""What to do instead if GKE is busy."""


class OperationSource(Protocol):
    async def operation(self, location: str, operation: str) -> OperationReport:
        """Raises `CallFailed`."""


class Operations:
    def __init__(self, source: OperationSource, settings: GkeSettings, clock: Clock | None = None) -> None:
        self._source = source
        self._settings = settings
        self._clock = clock or SystemClock()
        self._turns = Turns(settings.operations_per_cluster, settings.turn_s)

    async def run(
        self,
        cluster: ClusterName,
        pool: str | None,
        what: str,
        ask: Callable[[], Awaitable[OperationReport]],
        classify: Classify = call_outcome,
        *,
        within_s: float | None = None,
        watch: Watch | None = None,
        when_busy: WhenBusy | None = None,
    ) -> Outcome:
        """Request an operation and wait for its end. An unanswered request is not repeated: GKE may have it."""

        async def act() -> Outcome:
            try:
                begun = await ask()
            except CallFailed as failed:
                outcome = classify(failed, self._settings.project)
                if when_busy is None or not isinstance(outcome, Busy):
                    return outcome
                return await _instead(when_busy, outcome)
            return await self._until_ended(begun, what, within_s or self._settings.operation_s, watch)

        return await self.do(cluster, pool, what, act, classify)

    async def do(
        self,
        cluster: ClusterName,
        pool: str | None,
        what: str,
        act: Callable[[], Awaitable[Outcome]],
        classify: Classify = call_outcome,
    ) -> Outcome:
        """Run `act` when it is its turn. A `CallFailed` becomes an outcome."""
        try:
            async with self._turns.turn(cluster, pool, what):
                return await act()
        except CallFailed as failed:
            return classify(failed, self._settings.project)
        except NoTurn as busy:
            return Busy(f"{what}: {busy}")

    async def _until_ended(self, report: OperationReport, what: str, within_s: float, watch: Watch | None) -> Outcome:
        settings = self._settings
        looks = pauses(settings.errors_first_s, settings.errors_most_s, POLL_GROWTH)
        started_s = heard_s = self._clock.monotonic_s()
        waits = pauses(settings.poll_first_s, settings.poll_most_s, POLL_GROWTH)
        look_s = started_s + next(looks)
        while not report.ended:
            now_s = self._clock.monotonic_s()
            if now_s - started_s > within_s:
                return Unfinished(f"{what}: {report.name} has not ended after {within_s:g} s")
            await asyncio.sleep(next(waits))
            try:
                report = await self._source.operation(report.location, report.name)
                heard_s = self._clock.monotonic_s()
            except CallFailed as failed:
                if failed.code is Code.NOT_FOUND:
                    return Unreachable(f"{what}: GKE has forgotten its operation {report.name}")
                if not _is_temporary(failed):
                    return call_outcome(failed, settings.project)
                if self._clock.monotonic_s() - heard_s > settings.lost_s:
                    return Unreachable(f"{what}: {report.name} began, but its result is unknown: {failed.message}")
            if watch is not None and not report.ended and self._clock.monotonic_s() >= look_s:
                seen = await _look(watch, report)
                if seen is not None:
                    return seen
                look_s = self._clock.monotonic_s() + next(looks)
        return operation_outcome(report, settings.project)


async def _instead(when_busy: WhenBusy, busy: Busy) -> Outcome:
    try:
        return await when_busy(busy)
    except CallFailed:
        return busy


async def _look(watch: Watch, report: OperationReport) -> Outcome | None:
    try:
        return await watch(report)
    except CallFailed:
        return None


def _is_temporary(failed: CallFailed) -> bool:
    return failed.code in UNANSWERED or failed.code is Code.RESOURCE_EXHAUSTED
