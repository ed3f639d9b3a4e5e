"""`tradewind rm`: remove a job that has ended."""

from typing import TYPE_CHECKING

import click

from tradewind.cli.options import examples, job_argument, json_option
from tradewind.terminal import output

if TYPE_CHECKING:
    from tradewind.client.api import Api


@click.command(epilog=examples("tradewind rm mnist"))
@job_argument
@json_option
def rm(job: str, as_json: bool) -> None:
    """Remove JOB, which has ended: its record, logs, events and costs. Its name is free afterwards.

    What it has cost can be seen before: tradewind cost JOB. Checkpoints and other files of the job are not touched.
    """
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: remove_job(api, job, as_json=as_json))


async def remove_job(api: "Api", job: str, *, as_json: bool) -> int:
    view = await api.remove(job)
    if as_json:
        output.echo_json(view)
    else:
        click.echo(f"Job {job}, which had {view.phase}, was removed with its logs, events and costs. Its name is free.")
        click.echo(output.next_command("tradewind status"))
    return 0
