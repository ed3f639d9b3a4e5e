"""`tradewind status`: all jobs, or one job with its workers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext

import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from messages.api import JobList, JobView
from messages.workers import WrittenCheckpoint
from runtime.plain_text import plain
from tradewind.client import following
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.client.watch import has_ended
from tradewind.terminal import output, tables

WATCH_EVERY_S = 1.0
NO_JOBS = "There are no jobs yet."
VERBS = {"succeeded": "has", "failed": "has", "stopped": "was"}
"""The verb before a phase: `job mnist has failed`. Phases that are not listed have `is`."""


async def show_status(api: Api, job: str | None, *, watch: bool, all_workers: bool = False, as_json: bool) -> int:
    if watch:
        return await _watch_status(api, job, as_json=as_json)
    listed = await _fetch_jobs(api, job)
    if all_workers and job is not None:
        [view] = listed.jobs
        workers = await api.all_workers(job)
        listed = JobList((msgspec.structs.replace(view, workers=workers, workers_total=len(workers)),))
    if as_json:
        output.echo_json(listed if job is None else listed.jobs[0])
        return 0
    tables.console().print(_render(listed, job))
    output.hint(_choose_next_command(listed, job))
    return 0


async def _watch_status(api: Api, job: str | None, *, as_json: bool) -> int:
    """Show the status until the job ends.

    A terminal is redrawn every second. A file, a pipe, a dumb terminal and JSON get a new status when one of its fields
    changed, volatile ones excepted.
    """
    console = tables.console()
    last: JobList | None = None
    drawing: AbstractContextManager[Live | None] = nullcontext()
    if console.is_interactive and not as_json:
        drawing = Live(console=console, auto_refresh=False)
    with drawing as live:
        async for listed in _poll_jobs(api, job):
            lasting = JobList(tuple(_without_volatile_fields(view) for view in listed.jobs), listed.unread)
            if live is not None:
                live.update(_render(listed, job), refresh=True)
            elif lasting != last and as_json:
                output.echo_json(listed if job is None else listed.jobs[0])
            elif lasting != last:
                console.print(_render(listed, job))
            last = lasting
            if job is not None and has_ended(listed.jobs[0]):
                return 0
    return 0


def _without_volatile_fields(view: JobView) -> JobView:
    """The job without the fields that change again and again while it trains; its step and loss remain."""
    return msgspec.structs.replace(view, workers=(), samples_per_s=None, measured=None)


async def _poll_jobs(api: Api, job: str | None) -> AsyncIterator[JobList]:
    """Fetch the jobs once a second. A master that was reached before may be away for a while, as in a restart."""
    loop = asyncio.get_running_loop()
    heard_s: float | None = None
    while True:
        try:
            yield await _fetch_jobs(api, job)
            heard_s = loop.time()
        except MasterAway:
            if heard_s is None or loop.time() - heard_s > following.PATIENCE_S:
                raise
        await asyncio.sleep(WATCH_EVERY_S)


async def _fetch_jobs(api: Api, job: str | None) -> JobList:
    return await api.job_list() if job is None else JobList((await api.job(job),))


def _render(listed: JobList, job: str | None) -> RenderableType:
    if job is not None:
        return job_detail(listed.jobs[0], time.time())
    if not listed.jobs and not listed.unread:
        return NO_JOBS
    return job_table(listed, time.time())


def _choose_next_command(listed: JobList, job: str | None) -> str:
    if not listed.jobs:
        return f"tradewind status {listed.unread[0]}" if listed.unread else "tradewind submit JOB.yaml"
    newest = max(listed.jobs, key=lambda view: view.submitted_at)
    if job is None:
        return f"tradewind status {newest.name}"
    if newest.paused:
        return f"tradewind budget {job}"
    return f"tradewind events {job}" if has_ended(newest) else f"tradewind logs {job} --follow"


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
        head.append(f"\nnewest checkpoint: {_checkpoint_text(job.checkpoint, now)}")
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


def _checkpoint_text(checkpoint: WrittenCheckpoint, now: float) -> str:
    """Where and when the checkpoint was saved. Without the SDK only the time is known."""
    ago = f"{output.duration(now - checkpoint.at)} ago"
    if checkpoint.step is None:
        return f"saved by the script {ago}"
    return f"step {checkpoint.step} in {output.first_line(checkpoint.folder)}, {ago}"


def shown_phase(job: JobView) -> str:
    """The phase of the job; `paused` if it waits for a larger budget."""
    return "paused" if job.paused and job.phase == "waiting" else job.phase
