"""What the command asks the master, and what it prints."""

import click

from tradewind.cli import present
from tradewind.cli.api.client import Api
from tradewind.cli.cost.sentences import sentences
from tradewind.cli.cost.table import cost_table
from tradewind.cli.jobs.asking import echo_json


async def show_cost(api: Api, job: str, steps: int | None, *, as_json: bool) -> int:
    view = await api.cost(job, steps)
    if as_json:
        echo_json(view)
        return 0
    for line in sentences(view):
        click.echo(line)
    if view.lines:
        click.echo()
        present.console().print(cost_table(view.lines))
    click.echo(present.next_command(f"tradewind status {job}"))
    return 0
