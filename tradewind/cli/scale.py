"""`tradewind scale`: changes the number of workers of a job."""

import click

from messages.api import JobView
from tradewind.client.api import Api
from tradewind.terminal import output


async def scale_job(api: Api, job: str, workers: int, *, as_json: bool) -> int:
    view = await api.scale(job, workers)
    if as_json:
        output.echo_json(view)
        return 0
    click.echo(scaled_text(view))
    output.hint(f"tradewind status {job} --watch")
    return 0


def scaled_text(view: JobView) -> str:
    return f"Job {view.name} is now allowed {output.count(view.wanted, 'worker')}."
