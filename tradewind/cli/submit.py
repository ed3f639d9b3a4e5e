"""`tradewind submit`: submit the job of a YAML file, and wait for its end if asked to."""

import asyncio

import click

from messages.api import JobView
from messages.jobs import JobSpec
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway, NotAsked, NotLeading
from tradewind.client.watch import Watch
from tradewind.terminal import output

START_S = 5.0
"""Seconds to wait for a master that is just being started."""
AGAIN_S = 0.2


async def submit_job(api: Api, spec: JobSpec, *, replace: bool, wait: bool, as_json: bool) -> int:
    view = await _submitted(api, spec, replace)
    if wait:
        return await _wait(api, view, as_json=as_json)
    if spec.capacity is not None and await _has_no_fleet(api):
        output.say("its capacity section is not used: this master has no fleet, so no budget is kept")
    if view.warning:
        output.say(f"warning: {view.warning}")
    if as_json:
        output.echo_json(view)
    else:
        click.echo(f"Job {view.name} was submitted: {view.phase}, {output.count(view.wanted, 'worker')} wanted.")
        click.echo(output.next_command(f"tradewind logs {view.name} --follow"))
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
            output.say(f"no master at {api.url} yet; waiting for one, up to {START_S:g} s")
            is_told = True
        await asyncio.sleep(AGAIN_S)


async def _wait(api: Api, view: JobView, *, as_json: bool) -> int:
    output.say(f"job {view.name} was submitted")
    watch = Watch(api, view.name, on_line=output.show_line, on_event=output.tell_event, on_away=output.say)
    try:
        end = await watch.until_end()
    except asyncio.CancelledError:
        output.say(
            f"job {view.name} goes on without this command. {output.next_command(f'tradewind stop {view.name}')}"
        )
        raise
    if as_json:
        output.echo_json(await api.job(view.name))
    output.say(f"job {view.name} {end.phase}: {output.first_line(end.why)}")
    if end.code:
        output.say(output.next_command(f"tradewind events {view.name}"))
    return end.code
