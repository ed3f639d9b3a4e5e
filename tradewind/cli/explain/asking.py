"""What the command asks the master, and what it prints."""

import click

from tradewind.cli import output, tables
from tradewind.cli.client import Api
from tradewind.cli.explain.decisions import decisions
from tradewind.cli.explain.show import shown
from tradewind.cli.output import echo_json


async def show_decisions(api: Api, job: str, last: int, *, as_json: bool) -> int:
    """Events are kept on the bus, so that it does not matter which master made a decision."""
    view = await api.job(job)
    made = list(decisions([event async for event in api.events(job)]))
    if as_json:
        for decision in made[-last:]:
            echo_json(decision)
        return 0
    if not made:
        click.echo(f"Nothing was decided about job {job} yet: it is {view.phase}.")
        click.echo(output.next_command(f"tradewind status {job}"))
        return 0
    tables.console().print(shown(made[-last:]))
    if len(made) > last:
        click.echo(
            f"{output.count(len(made) - last, 'decision')} before these not shown: --last {len(made)} shows all."
        )
    click.echo(output.next_command(f"tradewind events {job}"))
    return 0
