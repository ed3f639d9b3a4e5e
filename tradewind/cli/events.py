"""`tradewind events`: what happened to a job, or to everything, and why."""

from typing import TYPE_CHECKING

import click

from messages.api import EventLine
from runtime.plain_text import plain
from tradewind.cli.options import examples, json_option, some_job_argument
from tradewind.client import following
from tradewind.client.watch import is_over
from tradewind.terminal import output

if TYPE_CHECKING:
    from tradewind.client.api import Api


@click.command(
    epilog=examples(
        "tradewind events                     of everything",
        "tradewind events mnist --follow",
        "tradewind events mnist --causes      with the message that led to each",
    )
)
@some_job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the job's end, or until ctrl-C.")
@click.option("--causes", is_flag=True, help="Show the message that led to each event.")
@json_option
def events(job: str | None, follow: bool, causes: bool, as_json: bool) -> None:
    """Show what happened to JOB, or to everything, and why."""
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_events(api, job, follow=follow, causes=causes, as_json=as_json))


async def show_events(api: "Api", job: str | None, *, follow: bool, causes: bool = False, as_json: bool) -> int:
    await (api.version() if job is None else api.job(job))
    if follow:
        seen: following.Seen[EventLine] = following.Seen(following.source_of_event)
        stream = following.follow(
            lambda: api.events(job, follow=True), seen, lambda: is_over(api, job), on_away=output.say
        )
    else:
        stream = api.events(job)
    async for event in stream:
        if as_json:
            output.echo_json(event)
        else:
            output.show(output.event_line(event))
            if causes and event.caused_by:
                output.show(f"{output.CONTINUED}caused by {plain(event.caused_by)}")
        if follow and job is not None and event.ends_job:
            break
    return 0
