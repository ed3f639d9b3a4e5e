"""The command that shows what a job has cost, what of it was of use, and where it leads."""

import click

from tradewind.cli.options import Whole, examples, job_argument, json_option


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
    from tradewind.cli.client import ask_master
    from tradewind.cli.cost.asking import show_cost

    ask_master(lambda api: show_cost(api, job, steps, as_json=as_json))
