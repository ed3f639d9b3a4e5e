"""`tradewind submit`: submits the job of a YAML file, and can wait for its end."""

import asyncio
from functools import partial

import click

from messages.api import JobView
from messages.jobs import JobSpec
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway, NotAsked, NotLeading
from tradewind.client.watch import Watch
from tradewind.terminal import output

START_S = 5.0
"""Seconds to wait for a master that is starting."""
AGAIN_S = 0.2


async def submit_job(api: Api, spec: JobSpec, *, replace: bool, wait: bool, as_json: bool) -> int:
    view = await _submitted(api, spec, replace)
    if wait:
        return await _wait(api, view, as_json=as_json)
    if spec.capacity is not None and await _has_no_fleet(api):
        output.say("warning: the capacity section has no effect, and no budget applies: this master has no fleet")
    if view.warning:
        output.say(f"warning: {view.warning}")
    if as_json:
        output.echo_json(view)
    else:
        click.echo(submitted_text(view))
        output.hint(f"tradewind logs {view.name} --follow")
    return 0


def submitted_text(view: JobView) -> str:
    return f"Job {view.name} is submitted: {view.phase}, {output.count(view.wanted, 'worker')} wanted."


async def _has_no_fleet(api: Api) -> bool:
    """False if unknown: the job is already submitted, so this question must not fail."""
    try:
        return not (await api.version()).fleet
    except MasterAway:
        return False


async def _submitted(api: Api, spec: JobSpec, replace: bool) -> JobView:
    """Submits the job, also to a master that has just started and does not listen or lead yet."""
    loop = asyncio.get_running_loop()
    until_s, is_reported = loop.time() + START_S, False
    while True:
        try:
            return await api.submit(spec, replace=replace)
        except NotAsked as away:
            leads_elsewhere = isinstance(away, NotLeading) and bool(away.leader)
            if leads_elsewhere or loop.time() > until_s:
                raise
        if not is_reported:
            output.say(f"no master at {api.url} yet; waiting up to {START_S:g} s")
            is_reported = True
        await asyncio.sleep(AGAIN_S)


async def _wait(api: Api, view: JobView, *, as_json: bool) -> int:
    output.say(f"job {view.name} is submitted")
    show_line = partial(output.show_line, err=as_json)
    watch = Watch(api, view.name, on_line=show_line, on_event=output.tell_event, on_away=output.say)
    try:
        end = await watch.until_end()
    except asyncio.CancelledError:
        output.say(f"job {view.name} continues without this command")
        output.hint(f"tradewind stop {view.name}")
        raise
    if as_json:
        output.echo_json(await api.job(view.name))
    output.say(f"job {view.name} {end.phase}: {output.first_line(end.why)}")
    if end.code:
        output.hint(f"tradewind events {view.name}")
    return end.code
