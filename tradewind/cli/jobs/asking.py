"""What the commands about jobs do with the API."""

import asyncio
import time
from collections.abc import AsyncIterator

import click
import msgspec
from rich.console import RenderableType
from rich.live import Live

from messages.api import EventLine, JobList, JobView, LogLine
from messages.jobs import JobSpec
from tradewind.cli import present
from tradewind.cli.api import following
from tradewind.cli.api.client import Api
from tradewind.cli.api.errors import MasterAway, NotAsked, NotLeading
from tradewind.cli.api.following import Seen
from tradewind.cli.api.watch import Watch, has_ended

WATCH_EVERY_S = 1.0
START_S = 5.0
"""How long a job waits for somebody to take it."""
AGAIN_S = 0.2


async def submit(api: Api, spec: JobSpec, *, replace: bool, wait: bool, as_json: bool) -> int:
    view = await _submitted(api, spec, replace)
    if wait:
        return await _wait(api, view, as_json=as_json)
    if spec.capacity is not None and await _has_no_fleet(api):
        present.say("its capacity section is not used: this master has no fleet, so no budget is kept")
    if view.warning:
        present.say(f"warning: {view.warning}")
    if as_json:
        echo_json(view)
    else:
        click.echo(f"Job {view.name} was submitted: {view.phase}, {present.count(view.wanted, 'worker')} wanted.")
        click.echo(present.next_command(f"tradewind logs {view.name} --follow"))
    return 0


async def _has_no_fleet(api: Api) -> bool:
    """As far as is known: the job was submitted, whatever becomes of this question."""
    try:
        return not (await api.version()).fleet
    except MasterAway:
        return False


async def _submitted(api: Api, spec: JobSpec, replace: bool) -> JobView:
    """By a master that was started a moment ago, too: it may not listen yet, or not lead."""
    loop = asyncio.get_running_loop()
    until_s, is_told = loop.time() + START_S, False
    while True:
        try:
            return await api.submit(spec, replace=replace)
        except NotAsked as away:
            leads_elsewhere = isinstance(away, NotLeading) and bool(away.leader)
            if leads_elsewhere or loop.time() > until_s:
                raise
        if not is_told:
            present.say(f"no master at {api.url} yet; waiting for one, up to {START_S:g} s")
            is_told = True
        await asyncio.sleep(AGAIN_S)


async def _wait(api: Api, view: JobView, *, as_json: bool) -> int:
    present.say(f"job {view.name} was submitted")
    watch = Watch(api, view.name, on_line=present.show_line, on_event=present.tell_event, on_away=present.say)
    try:
        end = await watch.until_end()
    except asyncio.CancelledError:
        present.say(
            f"job {view.name} goes on without this command. {present.next_command(f'tradewind stop {view.name}')}"
        )
        raise
    if as_json:
        echo_json(await api.job(view.name))
    present.say(f"job {view.name} {end.phase}: {present.first_line(end.why)}")
    if end.code:
        present.say(present.next_command(f"tradewind events {view.name}"))
    return end.code


async def status(api: Api, job: str | None, *, watch: bool, as_json: bool) -> int:
    if watch:
        return await _watch_status(api, job, as_json=as_json)
    listed = await _listed(api, job)
    if as_json:
        echo_json(listed if job is None else listed.jobs[0])
        return 0
    present.console().print(_shown(listed, job))
    click.echo(present.next_command(_after_status(listed, job)))
    return 0


async def _watch_status(api: Api, job: str | None, *, as_json: bool) -> int:
    """Drawn again and again on a terminal; elsewhere printed when it has changed."""
    console = present.console()
    last = JobList(())
    with Live(console=console, auto_refresh=False) as live:
        async for listed in _lists(api, job):
            changes = JobList(tuple(_without_what_flows(view) for view in listed.jobs), listed.unread)
            if console.is_terminal and not as_json:
                live.update(_shown(listed, job), refresh=True)
            elif changes != last and as_json:
                echo_json(listed if job is None else listed.jobs[0])
            elif changes != last:
                console.print(_shown(listed, job))
            last = changes
            if job is not None and has_ended(listed.jobs[0]):
                return 0
    return 0


def _without_what_flows(view: JobView) -> JobView:
    return msgspec.structs.replace(view, workers=(), samples_per_s=None, measured=None)


async def _lists(api: Api, job: str | None) -> AsyncIterator[JobList]:
    """Once a second, over restarts of the master."""
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
        return present.job_detail(listed.jobs[0], time.time())
    if not listed.jobs and not listed.unread:
        return "There are no jobs yet."
    return present.job_table(listed, time.time())


def _after_status(listed: JobList, job: str | None) -> str:
    if not listed.jobs:
        return f"tradewind status {listed.unread[0]}" if listed.unread else "tradewind submit JOB.yaml"
    newest = max(listed.jobs, key=lambda view: view.submitted_at)
    if job is None:
        return f"tradewind status {newest.name}"
    if newest.paused:
        return f"tradewind budget {job}"
    return f"tradewind {'events' if has_ended(newest) else 'logs'} {job}{'' if has_ended(newest) else ' --follow'}"


async def logs(api: Api, job: str, *, rank: int | None, tail: int | None, follow: bool) -> int:
    await api.job(job)
    lines = _followed_lines(api, job, rank, tail) if follow else api.logs(job, rank=rank, tail=tail)
    count = 0
    async for line in lines:
        present.show_line(line)
        count += 1
    if count == 0 and tail != 0:
        whose = f"Rank {rank} of job" if rank is not None else "Job"
        click.echo(
            f"{whose} {job} has printed nothing yet. {present.next_command(f'tradewind status {job}')}", err=True
        )
    return 0


def _followed_lines(api: Api, job: str, rank: int | None, tail: int | None) -> AsyncIterator[LogLine]:
    """The tail is asked for once: after a reconnect every line since is wanted."""
    tails = iter((tail,))
    return following.follow(
        lambda: api.logs(job, rank=rank, tail=next(tails, None), follow=True),
        Seen(following.source_of_line),
        lambda: _has_ended(api, job),
        on_away=present.say,
    )


async def events(api: Api, job: str | None, *, follow: bool, as_json: bool) -> int:
    await (api.version() if job is None else api.job(job))
    if follow:
        seen: Seen[EventLine] = Seen(following.source_of_event)
        stream = following.follow(
            lambda: api.events(job, follow=True), seen, lambda: _has_ended(api, job), on_away=present.say
        )
    else:
        stream = api.events(job)
    async for event in stream:
        if as_json:
            echo_json(event)
        else:
            present.show(present.event_line(event))
        if follow and job is not None and event.ends_job:
            break
    return 0


async def scale(api: Api, job: str, workers: int) -> int:
    view = await api.scale(job, workers)
    click.echo(f"Job {job} may have {present.count(view.wanted, 'worker')} from now on.")
    click.echo(present.next_command(f"tradewind status {job} --watch"))
    return 0


async def reload(api: Api, job: str) -> int:
    view = await api.reload(job)
    if view.outdated:
        began = present.count(view.outdated, "worker")
        click.echo(f"Job {job} takes its code anew: {began} began with the code from before.")
    else:
        click.echo(f"Job {job} has nobody yet with other code than there is now.")
    click.echo(present.next_command(f"tradewind events {job} --follow"))
    return 0


async def remove(api: Api, job: str, *, as_json: bool) -> int:
    view = await api.remove(job)
    if as_json:
        echo_json(view)
    else:
        click.echo(f"Job {job}, which had {view.phase}, was removed with its logs, events and costs. Its name is free.")
        click.echo(present.next_command("tradewind status"))
    return 0


async def _has_ended(api: Api, job: str | None) -> bool:
    return job is not None and has_ended(await api.job(job))


def echo_json(value: object) -> None:
    present.show(msgspec.json.encode(value).decode())
