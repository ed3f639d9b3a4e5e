"""What people ask of a master, and what they are told."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import structs

from controlplane.api.views import job_view
from controlplane.catalog.views import offer_list
from controlplane.job import events
from controlplane.job.hot import lives_on
from controlplane.job.reload import can_do_without_one
from controlplane.job.stopping import default_grace_s
from controlplane.jobs.budgets import Budgets
from controlplane.jobs.errors import (
    JobExists,
    NotLeading,
    ReloadRefused,
    RemoveRefused,
    ScaleRefused,
    SpecRefused,
)
from controlplane.jobs.inbox import Refused
from controlplane.jobs.runner import HeldJob, Reported
from controlplane.ledger.views import cost_view, planned_steps, proven
from controlplane.master.master import Master
from messages.api import Health, JobView, Version
from messages.costs import CostView
from messages.envelope import VERSION as PROTOCOL
from messages.events import FLEET, Event
from messages.ids import JobName
from messages.jobs import JobSpec, Workers, contradictions
from messages.offers import OfferList
from runtime.bus import Bus

FEED_AT_MOST = 1000


class Desk:
    def __init__(self, master: Master) -> None:
        self._master = master

    @property
    def bus(self) -> Bus:
        return self._master.bus

    @property
    def budgets(self) -> Budgets:
        return self._master.budgets

    @property
    def has_told_all(self) -> bool:
        """No event waits to be sent, and streams are being read."""
        return self._master.announcer.idle and self.bus.connected

    def views(self) -> tuple[JobView, ...]:
        now_s = self._now_s()
        held = sorted(self._master.jobs.values(), key=lambda job: (job.state.record.submitted_at, job.name))
        return tuple(_view(job, now_s) for job in held)

    @property
    def unread(self) -> tuple[JobName, ...]:
        return self._master.unread

    def view(self, name: str) -> JobView:
        return _view(self.job(name), self._now_s())

    def job(self, name: str) -> HeldJob:
        return self._master.job(name)

    async def submit(self, spec: JobSpec, *, replace: bool = False) -> JobView:
        """`replace`: an ended job of the same name is removed first."""
        name = JobName(spec.name)
        found = problems_of(spec)
        if found:
            raise SpecRefused(tuple(f"{path}: {text}" for path, text in found))
        earlier = self._master.jobs.get(name) if replace else None
        if earlier is not None:
            self._check_ended(earlier)
        elif self._master.knows(name):
            raise JobExists(name)
        await self._check_can_be_had(spec)
        self._check_leads()
        if earlier is not None:
            await self._remove(earlier)
        await self._master.make(spec)
        self._master.announce(Event(name, "job_submitted", f"the job was submitted for {_size(spec.workers)}"))
        if spec.capacity is not None and self._master.capacity is None:
            why = "this master has no fleet: workers are started where its clusters are, whatever they cost"
            self._master.announce(Event(name, "capacity_ignored", "the job's capacity section is not used", why))
        warning = self._master.planning.warning(spec) if self._master.planning is not None else ""
        if warning:
            self._master.announce(Event(name, "gpus_idle", "the job pays for GPUs that it does not use", warning))
        await self._master.forget_oldest()
        return structs.replace(self.view(name), warning=warning)

    async def _check_can_be_had(self, spec: JobSpec) -> None:
        """Before anything is made: what the job allows may be none of what there is, or cost more than it may."""
        planning = self._master.planning
        problems = await planning.refusals(spec) if planning is not None else []
        if problems:
            raise SpecRefused(tuple(f"{path}: {text}" for path, text in problems))

    async def fresh_offers(self) -> OfferList:
        """With quotas that were read just now, if the cloud answers soon."""
        if self._master.planning is not None:
            await self._master.planning.refresh_quotas()
        return self.offers()

    def offers(self) -> OfferList:
        planning = self._master.planning
        if planning is not None:
            return planning.offers()
        return offer_list(self._master.list_prices(), None, self._master.clock.wall_s())

    async def stop_job(self, name: str, grace_s: float | None = None) -> JobView:
        """Without a grace: the one of a stop under way, else twice the longest of its last steps."""
        held = self.job(name)
        if not held.ended:
            self._check_leads()
            given_s = held.state.record.stop_grace_s if grace_s is None else grace_s
            asked_s = default_grace_s(held.state, held.longest_step_s) if given_s is None else given_s
            held.post(events.StopAsked(self._now_s(), "stopped by a person", asked_s))
            await held.until_saved(lambda record: record.stop_grace_s is not None and record.stop_grace_s <= asked_s)
        return self.view(name)

    async def remove(self, name: str) -> JobView:
        """An ended job: its records, its ledger, its logs and its events. The answer is what it was."""
        held = self.job(name)
        self._check_ended(held)
        self._check_leads()
        view = self.view(name)
        await self._remove(held)
        return view

    async def _remove(self, held: HeldJob) -> None:
        ended = f"Job {held.name!r} has {held.state.record.phase}, but"
        if not await held.until_settled():
            raise RemoveRefused(f"{ended} not all of its workers have ended yet.", "try again in a moment")
        if self._master.holds_machines(held):
            raise RemoveRefused(f"{ended} its machines are still being given back.", "try again in a moment")
        await self._master.remove(held)
        phase = held.state.record.phase
        self._master.announce_fleet("job_removed", f"job {held.name} was removed", f"asked by a person; it had {phase}")

    def _check_ended(self, held: HeldJob) -> None:
        if not held.ended:
            raise RemoveRefused(
                f"Job {held.name!r} is {held.state.record.phase}, and only a job that has ended can be removed.",
                f"stop it first: tradewind stop {held.name}",
            )

    async def scale(self, name: str, workers: int) -> JobView:
        held = self.job(name)
        limits = held.state.spec.workers
        if held.ended:
            raise ScaleRefused(f"Job {name!r} has {held.state.record.phase}.", "tradewind status")
        if not limits.min <= workers <= limits.max:
            raise ScaleRefused(
                f"Job {name!r} can have {limits.min} to {limits.max} workers, as its file says, and not {workers}.",
                f"tradewind scale {name} {min(max(workers, limits.min), limits.max)}",
            )
        if limits.allowed and workers not in limits.allowed:
            sizes = ", ".join(map(str, limits.allowed))
            smaller = max((size for size in limits.allowed if size < workers), default=limits.least)
            raise ScaleRefused(
                f"Job {name!r} can have {sizes} workers, as workers.allowed in its file says, and not {workers}.",
                f"tradewind scale {name} {smaller}",
            )
        await self.budgets.check_scale(held, workers)
        self._check_leads()
        held.post(events.ScaleAsked(self._now_s(), workers))
        await held.until_saved(lambda record: record.wanted == workers)
        return self.view(name)

    async def reload(self, name: str) -> JobView:
        held = self.job(name)
        record, limits = held.state.record, held.state.spec.workers
        if held.ended:
            raise ReloadRefused(f"Job {name!r} has {record.phase}.", "tradewind status")
        if lives_on(held.state) and not can_do_without_one(held.state):
            more = f"tradewind scale {name} {record.wanted + 1}, then reload it"
            raise ReloadRefused(
                f"Job {name!r} needs all the workers that it has, and a reload replaces them one after the other.",
                more if record.wanted < limits.max else "a smaller workers.min in its file, when it is submitted again",
            )
        self._check_leads()
        held.post(events.ReloadAsked(self._now_s()))
        await held.until_saved(lambda saved: saved.reloads > record.reloads)
        return self.view(name)

    async def cost(self, name: str, total_steps: int | None = None) -> CostView:
        """Raises `BusUnavailable` and `CostUnknown`."""
        held = self.job(name)
        ledger = proven(await self.budgets.ledger(held), held.state.record.certificate)
        view = cost_view(ledger, total_steps or planned_steps(held.state.spec), self.budgets.note)
        measured = held.measures.profile(self._now_s())
        return self.budgets.shown_with(structs.replace(view, measured=measured, ended=held.ended))

    @contextmanager
    def progress_feed(self, name: str) -> Iterator["asyncio.Queue[Reported]"]:
        """Progress messages as they come; the oldest is dropped for a reader that does not keep up."""
        held = self.job(name)
        feed: asyncio.Queue[Reported] = asyncio.Queue(FEED_AT_MOST)

        def listen(reported: Reported) -> None:
            if feed.full():
                feed.get_nowait()
            feed.put_nowait(reported)

        held.listeners.add(listen)
        try:
            yield feed
        finally:
            held.listeners.discard(listen)

    def health(self) -> Health:
        return Health(
            ok=self.bus.connected,
            why="" if self.bus.connected else "the bus is away",
            jobs=sum(not held.ended for held in self._master.jobs.values()),
            clusters=self._master.hearing.fresh_clusters(),
            dropped=dict(self.bus.dropped + self._master.dropped + self._doubts()),
        )

    def _doubts(self) -> Counter[str]:
        return Counter({Refused.DOUBTED: sum(held.state.doubts for held in self._master.jobs.values())})

    def version(self) -> Version:
        return Version(self._master.version, PROTOCOL, self._master.epoch, self._master.fleet)

    def _check_leads(self) -> None:
        if not self._master.may_act():
            raise NotLeading

    def _now_s(self) -> float:
        return self._master.clock.monotonic_s()


def _view(held: HeldJob, now_s: float) -> JobView:
    return job_view(held.state, held.progress, now_s, held.measures.profile(now_s), held.warning)


def problems_of(spec: JobSpec) -> list[tuple[str, str]]:
    """(Path in the file, what is wrong), as far as the job alone shows it."""
    reserved = [("name", f"{FLEET!r} is where events that belong to no job are kept")] if spec.name == FLEET else []
    return reserved + contradictions(spec)


def _size(workers: Workers) -> str:
    count = f"{workers.max}" if workers.min == workers.max else f"{workers.min} to {workers.max}"
    ranks = f", {workers.ranks} ranks each" if workers.ranks > 1 else ""
    return f"{count} {'worker' if count == '1' else 'workers'}{ranks}"
