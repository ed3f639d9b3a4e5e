"""What the command asks the master, and what it prints."""

import click

from messages.budgets import BudgetView
from tradewind.cli import output
from tradewind.cli.budget.sentences import sentences
from tradewind.cli.client import Api
from tradewind.cli.output import echo_json


async def show_budget(api: Api, job: str, *, as_json: bool) -> int:
    return _show(await api.budget(job), as_json=as_json)


async def raise_budget(api: Api, job: str, usd: float, *, as_json: bool) -> int:
    return _show(await api.raise_budget(job, usd), as_json=as_json)


def _show(view: BudgetView, *, as_json: bool) -> int:
    if as_json:
        echo_json(view)
        return 0
    for line in sentences(view):
        click.echo(line)
    more = f"tradewind budget {view.job} USD" if view.paused else f"tradewind cost {view.job}"
    click.echo(output.next_command(more))
    return 0
