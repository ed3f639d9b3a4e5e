"""What the command asks the master, and what it prints."""

import click

from tradewind.cli import output, tables
from tradewind.cli.client import Api
from tradewind.cli.cost.sentences import sentences
from tradewind.cli.cost.table import cost_table
from tradewind.cli.output import echo_json


async def show_cost(api: Api, job: str, steps: int | None, *, as_json: bool) -> int:
    view = await api.cost(job, steps)
    if as_json:
        echo_json(view)
        return 0
    for line in sentences(view):
        click.echo(line)
    if view.lines:
        click.echo()
        tables.console().print(cost_table(view.lines))
    click.echo(output.next_command(f"tradewind status {job}"))
    return 0
