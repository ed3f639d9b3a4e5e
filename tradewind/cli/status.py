"""`tradewind status`: all jobs, or one job with its workers."""

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from messages.api import JobList, JobView
from runtime.plain_text import plain
from tradewind.client import following
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.client.watch import has_ended
from tradewind.terminal import output, tables

WATCH_EVERY_S = 1.0
NO_JOBS = "There are no jobs yet."
VERBS = {"succeeded": "has", "failed": "has", "stopped": "was"}
"""Verbs before these phases; before all others it is `is`."""


async def show_status(api: Api, job: str | None, *, watch: bool, all_workers: bool = False, as_json: bool) -> int:
    if watch:
        return await _watch_status(api, job, as_json=as_json)
    listed = await _listed(api, job)
    if all_workers and job is not None:
        [view] = listed.jobs
        workers = await api.all_workers(job)
        listed = JobList((msgspec.structs.replace(view, workers=workers, workers_total=len(workers)),))
    if as_json:
        output.echo_json(listed if job is None else listed.jobs[0])
        return 0
    tables.console().print(_shown(listed, job))
    output.hint(_after_status(listed, job))
    return 0


async def _watch_status(api: Api, job: str | None, *, as_json: bool) -> int:
    """Redraws the status on a terminal; elsewhere prints each change."""
    console = tables.console()
    last = JobList(())
    with Live(console=console, auto_refresh=False) as live:
        async for listed in _lists(api, job):
            changes = JobList(tuple(_without_figures(view) for view in listed.jobs), listed.unread)
            if console.is_terminal and not as_json:
                live.update(_shown(listed, job), refresh=True)
            elif changes != last and as_json:
                output.echo_json(listed if job is None else listed.jobs[0])
            elif changes != last:
                console.print(_shown(listed, job))
            last = changes
            if job is not None and has_ended(listed.jobs[0]):
                return 0
    return 0


def _without_figures(view: JobView) -> JobView:
    return msgspec.structs.replace(view, workers=(), samples_per_s=None, measured=None)


async def _lists(api: Api, job: str | None) -> AsyncIterator[JobList]:
    """The jobs once a second, also across restarts of the master."""
    loop = asyncio.get_running_loop()
    heard_s: float | None = None
    while True:
        try:
            yield await _listed(api, job)
            heard_s = loop.time()
        except MasterAway:
            if heard_s is None or loop.time() - heard_s > following.PATIENCE_S:
                raise
        await asyncio.sleep(WATCH_EVERY_S)


async def _listed(api: Api, job: str | None) -> JobList:
    return await api.job_list() if job is None else JobList((await api.job(job),))


def _shown(listed: JobList, job: str | None) -> RenderableType:
    if job is not None:
        return job_detail(listed.jobs[0], time.time())
    if not listed.jobs and not listed.unread:
        return NO_JOBS
    return job_table(listed, time.time())


def _after_status(listed: JobList, job: str | None) -> str:
    if not listed.jobs:
        return f"tradewind status {listed.unread[0]}" if listed.unread else "tradewind submit JOB.yaml"
    newest = max(listed.jobs, key=lambda view: view.submitted_at)
    if job is None:
        return f"tradewind status {newest.name}"
    if newest.paused:
        return f"tradewind budget {job}"
    return f"tradewind {'events' if has_ended(newest) else 'logs'} {job}{'' if has_ended(newest) else ' --follow'}"


def job_table(listed: JobList, now: float) -> Table:
    numbers = (">WORLD", ">STEP", ">LOSS", ">SAMPLES/S", ">GENERATION", ">LOST", ">FAILED", ">AGE")
    newest_first = sorted(listed.jobs, key=lambda job: -job.submitted_at)
    return tables.table(
        ("NAME", "PHASE", *numbers, "WHY"),
        [
            *(_job_row(job, now) for job in newest_first),
            *(_unread_row(name, len(numbers)) for name in listed.unread),
        ],
    )


def _job_row(job: JobView, now: float) -> list[str | Text]:
    return [
        job.name,
        tables.phase_text(shown_phase(job)),
        f"{job.world_size}",
        output.number(job.step),
        tables.loss_text(job),
        output.number(job.samples_per_s),
        f"{job.generation}",
        f"{job.losses}",
        f"{job.failures}",
        output.duration(now - job.submitted_at),
        output.first_line(job.why),
    ]


def _unread_row(name: str, unknown: int) -> list[str | Text]:
    why = f"the master cannot read its record; see: tradewind status {name}"
    return [name, tables.phase_text(tables.UNREAD), *(output.NOTHING,) * unknown, why]


def job_detail(job: JobView, now: float) -> RenderableType:
    head = Text.assemble(
        (plain(job.name), "bold"),
        f" {VERBS.get(job.phase, 'is')} ",
        tables.phase_text(shown_phase(job)),
        f": {output.continued(job.why.strip())}\n" if job.why else "\n",
        f"generation {job.generation}, world of {job.world_size}, {output.count(job.wanted, 'worker')} wanted, "
        f"{job.losses} lost, {output.count(job.failures, 'failure')}, "
        f"submitted {output.duration(now - job.submitted_at)} ago",
    )
    if job.step is not None:
        head.append(f"\nstep {job.step}, loss {tables.loss_text(job)}, {output.number(job.samples_per_s)} samples/s")
    if job.nonfinite or job.skipped:
        steps = output.count(job.nonfinite, "step")
        what = f"{steps} with a non-finite loss or gradient, {job.skipped} skipped"
        head.append(f"\n{what}", "bold red" if job.loss_nonfinite else "yellow")
    if job.measured is not None:
        head.append(f"\na step: {output.step_text(job.measured)}")
    for rank in sorted((rank for worker in job.workers for rank in worker.paused), key=lambda rank: rank.rank):
        head.append(f"\nrank {rank.rank}: {output.first_line(rank.reason)} for {output.duration(now - rank.since)}")
    if job.checkpoint is not None:
        age, step = output.duration(now - job.checkpoint.at), job.checkpoint.step
        folder = output.first_line(job.checkpoint.folder)
        what = f": step {step} in {folder}" if step is not None else " of its script"
        head.append(f"\nnewest checkpoint{what}, {age} ago")
    if job.certificate is not None:
        head.append(
            f"\ncertificate: {plain(job.certificate.message)}", "green" if job.certificate.holds else "bold red"
        )
    if job.warning:
        head.append(f"\nwarning: {plain(job.warning)}", "yellow")
    if not job.workers:
        return head
    left_out = job.workers_total - len(job.workers)
    more = [f"{output.count(left_out, 'more worker')}; --all shows them"] if left_out > 0 else []
    return Group(head, tables.worker_table(job.workers), *more)


def shown_phase(job: JobView) -> str:
    """The phase of the job; `paused` if it waits for a larger budget."""
    return "paused" if job.paused and job.phase == "waiting" else job.phase
