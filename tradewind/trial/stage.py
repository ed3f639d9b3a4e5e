"""What all checks share: the fleet, the access to Google and the master, the job, and the limit of each wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from controlplane.clouds.gke.fleet_file import GkeFleet
from messages.api import EventLine, JobView
from messages.jobs import JobSpec
from runtime.errors import UserError
from tradewind.client.api import Api
from tradewind.client.errors import JobUnknown
from tradewind.trial.commands import WouldChange
from tradewind.trial.gcloud import Gcloud

T = TypeVar("T")

ENDED = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that each wait may take; tests use shorter ones."""

    start_s: float = 1800.0
    """Seconds until the job trains: cluster, machines, drivers and images."""
    notice_s: float = 120.0
    replaced_s: float = 1800.0
    removed_s: float = 600.0
    settled_s: float = 120.0
    """Seconds after a removal in which no machine may start."""
    stockout_s: float = 2400.0
    refused_s: float = 300.0
    gone_s: float = 900.0
    poll_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Scarce:
    """A machine that a zone is likely not to have."""

    machine_type: str
    accelerator: str
    zone: str


@dataclass(frozen=True, slots=True)
class Trial:
    fleet: GkeFleet
    spec: JobSpec
    gcloud: Gcloud
    api: Api
    scarce: Scarce
    billing_table: str
    dry_run: bool = False
    bounds: Bounds = Bounds()

    async def view(self) -> JobView | None:
        try:
            return await self.api.job(self.spec.name)
        except JobUnknown:
            return None

    async def events(self, since: float) -> list[EventLine]:
        return [event async for event in self.api.events(self.spec.name) if event.at >= since]

    async def running(self) -> JobView:
        """The view of the job when it trains with all workers. Submits the job if necessary. Raises `UserError`."""
        view = await self.view()
        if view is None or view.phase in ENDED:
            self.changes(f"tradewind submit {self.spec.name}")
            await self.api.submit(self.spec, replace=True)
        elif view.wanted < self.spec.workers.max:
            self.changes(f"tradewind scale {self.spec.name} {self.spec.workers.max}")
            await self.api.scale(self.spec.name, self.spec.workers.max)
        return await self.trains_with(self.spec.workers.max, self.bounds.start_s)

    async def trains_with(self, workers: int, within_s: float, without: Collection[str] = ()) -> JobView:
        """Wait until a world of that size takes steps. Raises `UserError` with what the job waits for.

        `without`: workers that must not be in that world.
        """
        last: JobView | None = None
        first_step: int | None = None

        async def looks() -> JobView | None:
            nonlocal last, first_step
            last = await self.view()
            is_whole = last is not None and last.phase == "running" and last.world_size == workers
            if last is None or not is_whole or last.step is None or _members(last) & set(without):
                first_step = None
                return None
            first_step = last.step if first_step is None else first_step
            return last if last.step > first_step else None

        found = await self.until(looks, within_s)
        if found is None:
            state = "is unknown to the master" if last is None else f"is {last.phase}: {last.why}"
            raise UserError(f"{no_world(workers, within_s)}; the job {state}")
        return found

    async def until(self, look: Callable[[], Awaitable[T | None]], within_s: float) -> T | None:
        """Repeat `look` until it finds something, and return that; None when the time is over."""
        ends_s = time.monotonic() + within_s
        while True:
            found = await look()
            if found is not None or time.monotonic() >= ends_s:
                return found
            await asyncio.sleep(self.bounds.poll_s)

    def changes(self, what: str) -> None:
        if self.dry_run:
            raise WouldChange(what)


def no_world(workers: int, within_s: float) -> str:
    return f"no world of {workers} trained within {within_s:g} s"


def _members(view: JobView) -> set[str]:
    return {worker.worker for worker in view.workers if worker.ranks}
