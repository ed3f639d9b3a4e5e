"""`tradewind cluster`: the controller that keeps workers as plain processes on this machine."""

import os
import sys

import click

from tradewind.cli.options import ROLE_HELP, examples, nats_option

DRAIN_S = 10.0
"""Seconds beyond the grace of its workers that the process has to end."""


@click.command(
    epilog=examples(
        "tradewind cluster                                 cluster `local` on this machine",
        "tradewind cluster --cluster lab --region eu-west1",
        after=ROLE_HELP,
    )
)
@nats_option
@click.option("--cluster", help="Its name.  [local]")
@click.option("--region", help="Where it is: ranks of one region become neighbours.")
@click.option("--run-dir", help="For workers' files and output; it stays if they do not end well.  [a folder in /tmp]")
@click.option("--max-workers", type=int, help="Of all jobs together.  [256]")
@click.option("--keep-workers/--end-workers", default=None, help="When it stops: leave the workers running.  [end]")
@click.option("--echo/--no-echo", default=None, help="Workers write to this terminal instead of to a file each.")
@click.option("--end-grace-s", type=float, help="From SIGTERM to SIGKILL of a worker.  [10]")
def cluster(**flags: object) -> None:
    """Start the static cluster-controller: it keeps the workers of jobs as plain processes on this machine."""
    from agents.cluster.main import main
    from agents.cluster.settings import ClusterSettings
    from runtime.logs import configure
    from runtime.process import run
    from runtime.settings import read_settings

    settings = read_settings(ClusterSettings, os.environ, flags)
    configure("cluster", cluster=settings.cluster)
    drain_s = settings.end_grace_s + DRAIN_S
    sys.exit(run(lambda stop: main(settings, stop, alone=True), drain_s=drain_s))
