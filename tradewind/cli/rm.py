"""`tradewind rm`: remove a job that has ended."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output


async def remove_job(api: Api, job: str, *, as_json: bool) -> int:
    view = await api.remove(job)
    if as_json:
        output.echo_json(view)
    else:
        click.echo(f"Job {job}, which had {view.phase}, was removed with its logs, events and costs. Its name is free.")
        click.echo(output.next_command("tradewind status"))
    return 0
