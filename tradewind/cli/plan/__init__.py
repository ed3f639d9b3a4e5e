"""The command that shows where a job would train and what that would cost, before anything is spent."""

from pathlib import Path

import click

from tradewind.cli.options import json_option

ABOUT = """
\b
Examples:
  tradewind plan job.yaml                        anywhere that is offered
  tradewind plan job.yaml --fleet fleet.yaml     from the machines of a fleet only
  tradewind plan job.yaml --json

\b
`capacity:` in the job file says what is allowed and wanted, `profile:` what a step needs; if the master has measured a
job of that name, that counts. Nothing is created. Prices are those of the master at TRADEWIND_API_URL if one answers,
else those that came with the program.
"""


@click.command(epilog=ABOUT)
@click.argument("jobfile", type=click.Path(path_type=Path), metavar="JOB.yaml")
@click.option("--fleet", type=click.Path(path_type=Path), metavar="FLEET.yaml", help="Only what this fleet may use.")
@json_option
def plan(jobfile: Path, fleet: Path | None, as_json: bool) -> None:
    """Show where the job of a YAML file would train, how fast and for how much, and what else was thought of."""
    from tradewind.cli.plan.asking import show_plan

    show_plan(jobfile, fleet, as_json=as_json)
