"""The command that shows what a job may spend, and raises it."""

import math

import click

from tradewind.cli.options import examples, job_argument, json_option

AT_MOST = 1_000_000_000


def _dollars(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        usd = float(value)
    except ValueError:
        usd = math.nan
    if not 0 < usd <= AT_MOST:
        raise click.BadParameter(f"{value!r} is not a number of dollars above 0 and up to {AT_MOST:,}.")
    return usd


@click.command(
    epilog=examples(
        "tradewind budget mnist               what it may spend, what is left, and whether it is paused",
        "tradewind budget mnist 50            50 USD in all from now on; a paused job goes on if that is enough",
        "tradewind budget mnist --json        whole numbers of micro-dollars",
    )
)
@job_argument
@click.argument("usd", required=False, callback=_dollars)
@json_option
def budget(job: str, usd: float | None, as_json: bool) -> None:
    """Show what JOB may spend in all, or let it spend USD in all, with what is spent already.

    A job that has reached its budget gives its machines back and waits; it goes on once it is raised far enough.
    """
    from tradewind.cli.budget.asking import raise_budget, show_budget
    from tradewind.cli.client import ask_master

    if usd is None:
        ask_master(lambda api: show_budget(api, job, as_json=as_json))
    else:
        ask_master(lambda api: raise_budget(api, job, usd, as_json=as_json))
