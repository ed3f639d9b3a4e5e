"""The operations of the API: what people can ask of a master."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import structs

from controlplane.api.views import WORKERS_SHOWN, job_view, worker_page
from controlplane.capacity.interface import JobCapacity
from controlplane.job import events
from controlplane.job.live.trainers import lives_on
from controlplane.job.reload import can_do_without_one
from controlplane.job.scaling import refuse_size
from controlplane.job.stopping import default_grace_s
from controlplane.jobs.budgets import Budgets
from controlplane.jobs.context import TermContext
from controlplane.jobs.errors import (
    BUS_AWAY,
    JobExists,
    NotLeading,
    ReloadRefused,
    RemoveRefused,
    ScaleRefused,
    SpecRefused,
    has_ended,
)
from controlplane.jobs.ingest import Ingest, Refused
from controlplane.jobs.registry import JobRegistry
from controlplane.jobs.runner import JobRunner, Reported
from controlplane.ledger.views import cost_view, planned_steps, proven
from messages.api import Health, JobList, JobView, Version, WorkerPage
from messages.costs import CostView
from messages.events import FLEET, Event
from messages.ids import JobName
from messages.jobs import JobSpec, Workers, contradictions
from messages.offers import OfferList

STOPPED = "stopped by a person"
WORKERS_LEFT = "not all of its workers have ended yet"
MACHINES_LEFT = "its machines are still being deleted"
FEED_AT_MOST = 1000
LISTED_WORKERS = 20
"""Most workers shown of each job in a list of jobs."""


class JobService:
    def __init__(
        self,
        context: TermContext,
        registry: JobRegistry,
        ingest: Ingest,
        budgets: Budgets,
        capacity: JobCapacity,
        about: Version,
    ) -> None:
        self.bus = context.bus
        self.budgets = budgets
        self._context = context
        self._registry = registry
        self._ingest = ingest
        self._capacity = capacity
        self._about = about

    @property
    def has_sent_all(self) -> bool:
        """True if no event waits to be sent and the bus is connected."""
        return self._context.announcer.idle and self.bus.connected

    def job_list(self, after: str = "", at_most: int | None = None) -> JobList:
        """A page of jobs, ordered by name, so that pages neither miss nor repeat a job while others come and go."""
        now_s = self._now_s()
        names = [name for name in sorted(self._registry.jobs) if name > after]
        page = names if at_most is None else names[:at_most]
        views = tuple(_view(self._registry.jobs[name], now_s, LISTED_WORKERS) for name in page)
        return JobList(views, self._registry.unread, page[-1] if len(page) < len(names) else "")

    def view(self, name: str) -> JobView:
        return _view(self.job(name), self._now_s())

    def workers(self, name: str, first: int, at_most: int) -> WorkerPage:
        runner = self.job(name)
        return worker_page(runner.state, runner.progress, self._now_s(), first, at_most)

    def job(self, name: str) -> JobRunner:
        return self._registry.job(name)

    async def submit(self, spec: JobSpec, *, replace: bool = False) -> JobView:
        """Submits a job. With `replace` an ended job of the same name is removed first."""
        name = JobName(spec.name)
        found = problems_of(spec)
        if found:
            raise SpecRefused(tuple(f"{path}: {text}" for path, text in found))
        earlier = self._registry.jobs.get(name) if replace else None
        if earlier is not None:
            self._check_ended(earlier)
        elif self._registry.knows(name):
            raise JobExists(name)
        await self._check_can_run(spec)
        self._check_leads()
        if earlier is not None:
            await self._remove(earlier)
        await self._registry.make(spec)
        self._context.announce(Event(name, "job_submitted", f"the job was submitted for {_size(spec.workers)}"))
        if spec.capacity is not None and not self._capacity.has_fleet:
            why = "this master has no fleet, so workers start in its clusters at any cost"
            self._context.announce(Event(name, "capacity_ignored", "the job's capacity section is ignored", why))
        warning = self._capacity.advisor.warning(spec)
        if warning:
            self._context.announce(Event(name, "gpus_idle", "the job pays for GPUs that it does not use", warning))
        await self._registry.forget_oldest()
        return structs.replace(self.view(name), warning=warning)

    async def _check_can_run(self, spec: JobSpec) -> None:
        """Refuses a job for which the fleet has no machines, or only ones that cost too much."""
        problems = await self._capacity.advisor.refusals(spec)
        if problems:
            raise SpecRefused(tuple(f"{path}: {text}" for path, text in problems))

    async def fresh_offers(self) -> OfferList:
        """Offers with current quotas, if the cloud answers in time."""
        await self._capacity.advisor.refresh_quotas()
        return self.offers()

    def offers(self) -> OfferList:
        return self._capacity.advisor.offers()

    async def stop_job(self, name: str, grace_s: float | None = None) -> JobView:
        """Stops a job. The default grace is that of an earlier stop, else twice the longest of its last steps."""
        runner = self.job(name)
        if not runner.ended:
            self._check_leads()
            given_s = runner.state.record.stop_grace_s if grace_s is None else grace_s
            asked_s = default_grace_s(runner.state, runner.longest_step_s) if given_s is None else given_s
            runner.post(events.StopAsked(self._now_s(), STOPPED, asked_s))
            await runner.until_saved(lambda record: record.stop_grace_s is not None and record.stop_grace_s <= asked_s)
        return self.view(name)

    async def remove(self, name: str) -> JobView:
        """Removes an ended job: its records, ledger, logs and events. Returns its last view."""
        runner = self.job(name)
        self._check_ended(runner)
        self._check_leads()
        view = self.view(name)
        await self._remove(runner)
        return view

    async def _remove(self, runner: JobRunner) -> None:
        ended = f"Job {runner.name!r} has {runner.state.record.phase}, but"
        if not await runner.until_settled():
            raise RemoveRefused(f"{ended} {WORKERS_LEFT}.", "try again in a moment")
        if self._registry.holds_machines(runner):
            raise RemoveRefused(f"{ended} {MACHINES_LEFT}.", "try again in a moment")
        await self._registry.remove(runner)
        phase = runner.state.record.phase
        self._context.announce_fleet("job_removed", f"job {runner.name} was removed", f"it had {phase}")

    def _check_ended(self, runner: JobRunner) -> None:
        if not runner.ended:
            raise RemoveRefused(
                f"Job {runner.name!r} is {runner.state.record.phase}; only an ended job can be removed.",
                f"stop it first: tradewind stop {runner.name}",
            )

    async def scale(self, name: str, workers: int) -> JobView:
        runner = self.job(name)
        if runner.ended:
            raise ScaleRefused(has_ended(name, runner.state.record.phase), "tradewind status")
        refused = refuse_size(runner.state.spec.workers, workers)
        if refused is not None:
            raise ScaleRefused(f"Job {name!r} {refused.why}.", f"tradewind scale {name} {refused.instead}")
        await self.budgets.check_scale(runner, workers)
        self._check_leads()
        runner.post(events.ScaleAsked(self._now_s(), workers))
        await runner.until_saved(lambda record: record.wanted == workers)
        return self.view(name)

    async def reload(self, name: str) -> JobView:
        runner = self.job(name)
        record, limits = runner.state.record, runner.state.spec.workers
        if runner.ended:
            raise ReloadRefused(has_ended(name, record.phase), "tradewind status")
        if lives_on(runner.state) and not can_do_without_one(runner.state):
            more = f"tradewind scale {name} {record.wanted + 1}, then reload it"
            raise ReloadRefused(
                f"Job {name!r} needs all of its workers, but a reload replaces them one after the other.",
                more if record.wanted < limits.max else "submit it again with a smaller workers.min",
            )
        self._check_leads()
        runner.post(events.ReloadAsked(self._now_s()))
        await runner.until_saved(lambda saved: saved.reloads > record.reloads)
        return self.view(name)

    async def cost(self, name: str, total_steps: int | None = None) -> CostView:
        """Raises `BusUnavailable` and `CostUnknown`."""
        runner = self.job(name)
        ledger = proven(await self.budgets.ledger(runner), runner.state.record.certificate)
        view = cost_view(ledger, total_steps or planned_steps(runner.state.spec), self.budgets.note)
        measured = runner.measures.profile(self._now_s())
        return self.budgets.shown_with(structs.replace(view, measured=measured, ended=runner.ended))

    @contextmanager
    def progress_feed(self, name: str) -> Iterator["asyncio.Queue[Reported]"]:
        """Progress messages as they arrive; a slow reader loses the oldest."""
        runner = self.job(name)
        feed: asyncio.Queue[Reported] = asyncio.Queue(FEED_AT_MOST)

        def listen(reported: Reported) -> None:
            if feed.full():
                feed.get_nowait()
            feed.put_nowait(reported)

        runner.listeners.add(listen)
        try:
            yield feed
        finally:
            runner.listeners.discard(listen)

    def health(self) -> Health:
        return Health(
            ok=self.bus.connected,
            why="" if self.bus.connected else BUS_AWAY,
            jobs=self._registry.live,
            clusters=self._context.heard.fresh(self._context.now_s()),
            dropped=dict(self.bus.dropped + self._ingest.dropped + self._context.announcer.dropped + self._doubts()),
        )

    def _doubts(self) -> Counter[str]:
        return Counter({Refused.DOUBTED: sum(runner.state.doubtful.count for runner in self._registry.jobs.values())})

    def version(self) -> Version:
        return self._about

    def _check_leads(self) -> None:
        if not self._context.may_act():
            raise NotLeading

    def _now_s(self) -> float:
        return self._context.now_s()


def _view(runner: JobRunner, now_s: float, workers_at_most: int = WORKERS_SHOWN) -> JobView:
    measured, warning = runner.measures.profile(now_s), runner.warning
    return job_view(runner.state, runner.progress, now_s, measured, warning, workers_at_most)


def problems_of(spec: JobSpec) -> list[tuple[str, str]]:
    """Problems of the spec alone: paths in the file and messages."""
    reserved = [("name", f"{FLEET!r} is reserved for events that belong to no job")] if spec.name == FLEET else []
    return reserved + contradictions(spec)


def _size(workers: Workers) -> str:
    count = f"{workers.max}" if workers.min == workers.max else f"{workers.min} to {workers.max}"
    ranks = f", {workers.ranks} ranks each" if workers.ranks > 1 else ""
    return f"{count} {'worker' if count == '1' else 'workers'}{ranks}"
