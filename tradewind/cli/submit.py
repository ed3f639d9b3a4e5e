"""`tradewind submit`: submit the job of a YAML file, and wait for its end if asked to."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from messages.api import JobView
from messages.jobs import JobSpec
from tradewind.cli.options import examples, json_option
from tradewind.client.errors import MasterAway, NotAsked, NotLeading
from tradewind.client.jobfile import read_job
from tradewind.client.watch import Watch
from tradewind.terminal import output

if TYPE_CHECKING:
    from tradewind.client.api import Api

START_S = 5.0
"""Seconds to wait for a master that is just being started."""
AGAIN_S = 0.2


@click.command(
    epilog=examples(
        "tradewind submit job.yaml",
        "tradewind submit job.yaml --wait     follow it, and exit with its result",
        "tradewind submit job.yaml --replace  once more, in place of the last one of this name",
    )
)
@click.argument("jobfile", type=click.Path(path_type=Path), metavar="JOB.yaml")
@click.option(
    "--replace", is_flag=True, help="Remove an ended job of the same name first. A job that has not ended is refused."
)
@click.option("--wait", is_flag=True, help="Show what its ranks print, until its end; exit with the job's result.")
@json_option
def submit(jobfile: Path, replace: bool, wait: bool, as_json: bool) -> None:
    """Submit the job that a YAML file describes.

    A relative workdir is taken from the file's folder (which is the default), a relative script from the workdir.
    """
    from tradewind.cli.runner import ask_master

    spec = read_job(jobfile)
    ask_master(lambda api: submit_job(api, spec, replace=replace, wait=wait, as_json=as_json))


async def submit_job(api: "Api", spec: JobSpec, *, replace: bool, wait: bool, as_json: bool) -> int:
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


async def _has_no_fleet(api: "Api") -> bool:
    """As far as is known: the job was submitted, whatever becomes of this question."""
    try:
        return not (await api.version()).fleet
    except MasterAway:
        return False


async def _submitted(api: "Api", spec: JobSpec, replace: bool) -> JobView:
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


async def _wait(api: "Api", view: JobView, *, as_json: bool) -> int:
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
