"""`tradewind reload`: the newest code for a job while it trains."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output


async def reload_job(api: Api, job: str) -> int:
    view = await api.reload(job)
    if view.outdated:
        run = "runs" if view.outdated == 1 else "run"
        click.echo(f"Reloading {job}: {output.count(view.outdated, 'worker')} still {run} the old code.")
    else:
        click.echo(f"Reloading {job}: no worker runs old code.")
    click.echo(output.next_command(f"tradewind events {job} --follow"))
    return 0
