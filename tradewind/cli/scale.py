"""`tradewind scale`: more workers for a job, or fewer."""

from typing import TYPE_CHECKING

import click

from tradewind.cli.options import Whole, examples, job_argument
from tradewind.terminal import output

if TYPE_CHECKING:
    from tradewind.client.api import Api


@click.command(epilog=examples("tradewind scale mnist 8"))
@job_argument
@click.argument("workers", type=Whole(min=1))
def scale(job: str, workers: int) -> None:
    """Let JOB have WORKERS workers from now on. It goes on training while they come or go."""
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: scale_job(api, job, workers))


async def scale_job(api: "Api", job: str, workers: int) -> int:
    view = await api.scale(job, workers)
    click.echo(f"Job {job} may have {output.count(view.wanted, 'worker')} from now on.")
    click.echo(output.next_command(f"tradewind status {job} --watch"))
    return 0
