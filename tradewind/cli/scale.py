"""`tradewind scale`: more workers for a job, or fewer."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output


async def scale_job(api: Api, job: str, workers: int) -> int:
    view = await api.scale(job, workers)
    click.echo(f"Job {job} may have {output.count(view.wanted, 'worker')} from now on.")
    click.echo(output.next_command(f"tradewind status {job} --watch"))
    return 0
