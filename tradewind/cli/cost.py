"""`tradewind cost`: what a job has cost, what of it was of use, and where it leads."""

from typing import TYPE_CHECKING

import click

from tradewind.cli.options import Whole, examples, job_argument, json_option
from tradewind.terminal import output, tables
from tradewind.terminal.costs import cost_lines, cost_table

if TYPE_CHECKING:
    from tradewind.client.api import Api


@click.command(
    epilog=examples(
        "tradewind cost mnist",
        "tradewind cost mnist --steps 100000     with a forecast until that step is done",
        "tradewind cost mnist --json             whole numbers of micro-dollars",
    )
)
@job_argument
@click.option(
    "--steps",
    type=Whole(1, 10**12 - 1),
    help="Of the whole run, for the forecast; else `capacity.deadline.steps` or `hyperparameters.steps` of the job.",
)
@json_option
def cost(job: str, steps: int | None, as_json: bool) -> None:
    """Show what JOB has cost: in all, by zone, for 1,000 steps, what was wasted, and against on-demand.

    Every second of a machine counts at the price of that second, from its start to its end.
    """
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_cost(api, job, steps, as_json=as_json))


async def show_cost(api: "Api", job: str, steps: int | None, *, as_json: bool) -> int:
    view = await api.cost(job, steps)
    if as_json:
        output.echo_json(view)
        return 0
    for line in cost_lines(view):
        click.echo(line)
    if view.lines:
        click.echo()
        tables.console().print(cost_table(view.lines))
    click.echo(output.next_command(f"tradewind status {job}"))
    return 0
