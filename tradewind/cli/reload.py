"""`tradewind reload`: the newest code for a job that goes on training."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output


async def reload_job(api: Api, job: str) -> int:
    view = await api.reload(job)
    if view.outdated:
        began = output.count(view.outdated, "worker")
        click.echo(f"Job {job} takes its code anew: {began} began with the code from before.")
    else:
        click.echo(f"Job {job} has nobody yet with other code than there is now.")
    click.echo(output.next_command(f"tradewind events {job} --follow"))
    return 0
