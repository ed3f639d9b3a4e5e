"""The command that finds what belongs to no live job in the cloud, and removes it when told to."""

from pathlib import Path

import click

from tradewind.cli.options import json_option

ABOUT = """
\b
Examples:
  tradewind reap --fleet fleet.yaml                what would be removed, and what it costs an hour
  tradewind reap --fleet fleet.yaml --yes          remove it
  tradewind reap --fleet fleet.yaml --clusters     the fleet's clusters, too: the end of a fleet

\b
Exit codes: 0 nothing is left to remove, 3 something was found and --yes was not given, 1 something could not be
removed, 2 the command could not be carried out.

\b
Which jobs live is asked of the master at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set), if it has this fleet,
or, if it does not answer, read from the records on its bus, if TRADEWIND_NATS_URL names it. Nothing is guessed.
"""


@click.command(epilog=ABOUT)
@click.option(
    "--fleet",
    type=click.Path(path_type=Path),
    metavar="FLEET.yaml",
    envvar="TRADEWIND_FLEET",
    required=True,
    help="The fleet to check for leftovers; else TRADEWIND_FLEET.",
)
@click.option("--clusters", is_flag=True, help="Also the clusters that the fleet file names. End the master first.")
@click.option("--yes", is_flag=True, help="Remove what was found.")
@click.option(
    "--assume-no-jobs",
    is_flag=True,
    help="Do not ask the master: treat every job of this fleet as ended. Only if you are sure.",
)
@json_option
def reap(fleet: Path, clusters: bool, yes: bool, assume_no_jobs: bool, as_json: bool) -> None:
    """Show what is in the cloud with the fleet's label and belongs to no live job; with --yes remove it.

    Pools of jobs that have ended or that nobody knows, machines without a pool, clusters that the fleet file does not
    name. What is another fleet's, or nobody's that we know, is never touched.
    """
    from tradewind.cli.reap.asking import show_orphans
    from tradewind.cli.reap.looking import Wish

    show_orphans(fleet, Wish(clusters, yes, assume_no_jobs, as_json))
