"""The command that shows the last decisions about a job: what was decided, why, and what was not chosen."""

import click

from tradewind.cli.options import Whole, examples, job_argument, json_option

LAST = 10


@click.command(
    epilog=examples(
        "tradewind explain mnist               the last 10 decisions, the newest at the end",
        "tradewind explain mnist --last 50",
        "tradewind explain mnist --json        a line of JSON for each",
    )
)
@job_argument
@click.option("--last", type=Whole(1, 10_000), default=LAST, show_default=True, help="How many decisions to show.")
@json_option
def explain(job: str, last: int, as_json: bool) -> None:
    """Show the last decisions about JOB: placements, pools, shortages, worlds and money, each with its why.

    A placement is shown with those that were not chosen, and by how much they are worse.
    Everything that happened is in `tradewind events`.
    """
    from tradewind.cli.client import ask_master
    from tradewind.cli.explain.asking import show_decisions

    ask_master(lambda api: show_decisions(api, job, last, as_json=as_json))
