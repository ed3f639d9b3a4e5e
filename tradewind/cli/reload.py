"""`tradewind reload`: the newest code for a job that goes on training."""

from typing import TYPE_CHECKING

import click

from tradewind.cli.options import examples, job_argument
from tradewind.terminal import output

if TYPE_CHECKING:
    from tradewind.client.api import Api


@click.command(epilog=examples("tradewind reload mnist", "tradewind events mnist --follow       see it happen"))
@job_argument
def reload(job: str) -> None:
    """Let JOB take its code anew, as it is now in its workdir or image.

    With the SDK it goes on training: its workers are replaced one after the other, each by a hand-over. If the new
    code does not work, the others stay as they are until it is mended. Without the SDK all its trainers are started
    again.
    """
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: reload_job(api, job))


async def reload_job(api: "Api", job: str) -> int:
    view = await api.reload(job)
    if view.outdated:
        began = output.count(view.outdated, "worker")
        click.echo(f"Job {job} takes its code anew: {began} began with the code from before.")
    else:
        click.echo(f"Job {job} has nobody yet with other code than there is now.")
    click.echo(output.next_command(f"tradewind events {job} --follow"))
    return 0
