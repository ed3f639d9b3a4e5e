"""Options and help of the commands that start a role. The role is loaded when it starts."""

import os
import sys

import click

from tradewind.cli.options import ROLE_HELP, examples, nats_option, setting

DRAIN_S = 10.0
"""Seconds beyond the grace of its workers in which the process must end."""


@click.command(
    epilog=examples(
        "tradewind master                                  on this machine only",
        "TRADEWIND_API_TOKEN=… tradewind master --api-host 0.0.0.0 --store-host 10.0.0.5",
        after=ROLE_HELP,
    )
)
@nats_option
@setting("--api-host", shows="127.0.0.1", help="Address of the HTTP API. Other addresses than 127.0.0.1 need a token.")
@setting("--api-port", type=int, shows="8800", help="Port of the HTTP API.")
@setting("--store-host", shows="127.0.0.1", help="Address at which trainers reach the stores on this machine.")
@setting("--store-bind", shows="the store host", help="Address on which the stores listen, e.g. 0.0.0.0.")
@setting("--store-ports", shows="29400-29499", help="Range of ports; each generation of a job uses one.")
@setting("--fleet", metavar="FILE", shows="static clusters only", help="Get nodes from the clouds in this fleet file.")
@setting("--pods-nats-url", shows="the URL of this process", help="URL at which pods of the fleet reach the bus.")
@setting("--keep-days", type=float, shows="14", help="Days for which events and logs are stored.")
def master(**flags: object) -> None:
    """Start a master, which decides for all jobs and serves the API."""
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
@setting("--cluster", shows="local", help="Name of the cluster.")
@setting("--region", shows="none", help="Region of the cluster. Ranks of one region become neighbours.")
@setting("--run-dir", shows="a folder in /tmp", help="Folder for the workers' files and output.")
@setting("--max-workers", type=int, shows="256", help="Most workers, of all jobs together.")
@setting("--keep-workers/--end-workers", default=None, shows="end-workers", help="Leave workers running at the end.")
@setting("--echo/--no-echo", default=None, shows="no-echo", help="Show workers' output here instead of in a file each.")
@setting("--end-grace-s", type=float, shows="10", help="Seconds from SIGTERM to SIGKILL of a worker.")
def cluster(**flags: object) -> None:
    """Start the static cluster-controller, which runs workers as plain processes on this machine."""
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
@setting("--job", shows="required", help="The job to work for.")
@setting("--cluster", shows="local", help="Cluster that receives its heartbeats.")
@setting("--uid", shows="random", help="First part of the worker's id.")
@setting("--slots", type=int, shows="1", help="Ranks that the worker can hold.")
@setting("--python", shows="the job's, else this one", help="Interpreter that trains.")
@setting("--region", shows="none", help="Region of the worker. Ranks of one region become neighbours.")
@setting("--zone", shows="none", help="Zone in the region.")
@setting("--node", shows="the host name", help="Name of the machine.")
@setting("--address", shows="127.0.0.1", help="Address at which ranks of other workers reach this machine.")
@setting("--run-dir", shows="a folder in /tmp", help="Folder for the worker's files.")
@setting("--notice-s", type=float, shows="15", help="Seconds to hand over after SIGTERM.")
@setting("--orphan-s", type=float, shows="600", help="Seconds without the bus before the worker ends itself.")
@setting("--echo/--no-echo", default=None, shows="no-echo", help="Also show trainers' lines here.")
@setting("--external-host/--own-host", default=None, shows="own-host", help="Use a host of another container.")
def worker(**flags: object) -> None:
    """Start a worker-agent, which holds ranks of a job and starts their trainers."""
    from agents.worker.main import drain_s, main
    from agents.worker.settings import WorkerSettings
    from runtime.logs import configure
    from runtime.process import leave, run
    from runtime.settings import read_settings

    settings = read_settings(WorkerSettings, os.environ, flags)
    configure("worker", job=settings.job)
    leave(run(lambda stop: main(settings, stop, alone=True), drain_s=drain_s(settings)))
