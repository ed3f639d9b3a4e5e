"""`tradewind cost`: the cost of a job, its useful part, and a forecast."""

import click

from tradewind.client.api import Api
from tradewind.terminal import output, tables
from tradewind.terminal.costs import cost_lines, cost_table


async def show_cost(api: Api, job: str, steps: int | None, *, as_json: bool) -> int:
    view = await api.cost(job, steps)
    if as_json:
        output.echo_json(view)
        return 0
    for line in cost_lines(view):
        click.echo(line)
    if view.lines:
        click.echo()
        tables.console().print(cost_table(view.lines))
    output.hint(f"tradewind status {job}")
    return 0
