"""`tradewind rm`: removes an ended job."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output


async def remove_job(api: Api, job: str, *, as_json: bool) -> int:
    view = await api.remove(job)
    if as_json:
        output.echo_json(view)
    else:
        click.echo(f"Job {job} ({view.phase}) is removed with its logs, events and costs. Its name is free.")
        output.hint("tradewind status")
    return 0
