"""`tradewind reload`: reloads the code of a job while it trains."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output


async def reload_job(api: Api, job: str, *, as_json: bool) -> int:
    view = await api.reload(job)
    if as_json:
        output.echo_json(view)
        return 0
    click.echo(reload_text(job, view.outdated))
    output.hint(f"tradewind events {job} --follow")
    return 0


def reload_text(job: str, outdated: int) -> str:
    """How many workers still run the old code."""
    if not outdated:
        return f"Reloading {job}: no worker runs the old code."
    run = "runs" if outdated == 1 else "run"
    return f"Reloading {job}: {output.count(outdated, 'worker')} still {run} the old code."
