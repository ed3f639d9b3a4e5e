"""The commands that start a role: their options and help. A role is loaded when it starts."""

import os
import sys

import click

from tradewind.cli.options import ROLE_HELP, examples, nats_option

DRAIN_S = 10.0
"""Seconds beyond the grace of its workers that the process has to end."""


@click.command(
    epilog=examples(
        "tradewind master                                  on this machine only",
        "TRADEWIND_API_TOKEN=… tradewind master --api-host 0.0.0.0 --store-host 10.0.0.5",
        after=ROLE_HELP,
    )
)
@nats_option
@click.option("--api-host", help="Where the HTTP API listens; elsewhere than here it needs a token.  [127.0.0.1]")
@click.option("--api-port", type=int, help="Its port.  [8800]")
@click.option("--store-host", help="Where trainers reach this machine.  [127.0.0.1]")
@click.option("--store-bind", help="Where the stores listen, if not there, e.g. 0.0.0.0.")
@click.option("--store-ports", help="A range; each generation of a job takes one.  [29400-29499]")
@click.option(
    "--fleet", metavar="FILE", help="Get nodes from the cloud described in this file.  [static clusters only]"
)
@click.option("--pods-nats-url", help="The bus as pods of the fleet reach it, if not as this process does.")
@click.option("--keep-days", type=float, help="How long events and logs are kept.  [14]")
def master(**flags: object) -> None:
    """Start a master: it knows every job, makes the worlds and serves the API."""
    from controlplane.master.main import main
    from controlplane.master.settings import read_master_settings
    from runtime.logs import configure
    from runtime.process import run

    settings = read_master_settings(os.environ, flags)
    configure("master")
    sys.exit(run(lambda stop: main(settings, stop)))


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


@click.command(
    epilog=examples(
        "tradewind worker --job mnist                      a worker on this machine, for cluster `local`",
        "tradewind worker --job mnist --cluster lab --slots 8 --address 10.0.0.7",
        after=ROLE_HELP,
    )
)
@nats_option
@click.option("--job", help="The job to work for.  [required]")
@click.option("--cluster", help="Whose heartbeats it sends to.  [local]")
@click.option("--uid", help="First part of its id.  [random]")
@click.option("--slots", type=int, help="Ranks it can hold.  [1]")
@click.option("--python", help="The interpreter that trains.  [the job's, else this one]")
@click.option("--region", help="Where it is: ranks of one region become neighbours.")
@click.option("--zone", help="Where in the region.")
@click.option("--node", help="The machine's name.  [its host name]")
@click.option("--address", help="Where ranks of other workers reach this machine.  [127.0.0.1]")
@click.option("--run-dir", help="Where it keeps its files.  [a folder in /tmp]")
@click.option("--notice-s", type=float, help="Seconds left to hand over after SIGTERM.  [15]")
@click.option("--orphan-s", type=float, help="Ends by itself when the bus is away for so long.  [600]")
@click.option("--echo/--no-echo", default=None, help="Trainers' lines also go to this terminal.")
@click.option(
    "--external-host/--own-host", default=None, help="Wait for a host that comes from another container.  [own]"
)
def worker(**flags: object) -> None:
    """Start a worker-agent: it holds ranks of a job and starts their trainers."""
    from agents.worker.main import drain_s, main
    from agents.worker.settings import WorkerSettings
    from runtime.logs import configure
    from runtime.process import leave, run
    from runtime.settings import read_settings

    settings = read_settings(WorkerSettings, os.environ, flags)
    configure("worker", job=settings.job)
    leave(run(lambda stop: main(settings, stop, alone=True), drain_s=drain_s(settings)))
