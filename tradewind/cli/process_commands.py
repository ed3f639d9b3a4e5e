"""Options and help of `tradewind master`, `cluster` and `worker`. Each command loads its process when it starts."""

import os
import sys

import click

from tradewind.cli.options import PROCESS_HELP, examples, nats_option, setting

DRAIN_AFTER_GRACE_S = 10.0
"""Seconds that a stopping cluster-controller may take to end, after the grace of its workers."""


@click.command(
    epilog=examples(
        "tradewind master                                  on this machine only",
        "TRADEWIND_API_TOKEN=… tradewind master --api-host 0.0.0.0 --store-host 10.0.0.5",
        after=PROCESS_HELP,
    )
)
@nats_option
@setting(
    "--api-host",
    shows="127.0.0.1",
    help="Address on which the HTTP API listens. Any but a loopback address needs TRADEWIND_API_TOKEN.",
)
@setting("--api-port", type=int, shows="8800", help="Port of the HTTP API.")
@setting("--store-host", shows="127.0.0.1", help="Address of this machine at which trainers reach their stores.")
@setting("--store-bind", shows="the store host", help="Address on which the trainers' stores listen, e.g. 0.0.0.0.")
@setting(
    "--store-ports",
    shows="29400-29499",
    help="Ports for the trainers' stores, as FIRST-LAST. Each generation of a job uses one.",
)
@setting("--fleet", metavar="FILE", shows="static clusters only", help="Fleet file. Jobs get nodes from its clouds.")
@setting("--pods-nats-url", shows="the URL of this process", help="URL of the bus for pods of the fleet's clusters.")
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
        after=PROCESS_HELP,
    )
)
@nats_option
@setting("--cluster", shows="local", help="Name of the cluster.")
@setting("--region", shows="none", help="Region of the cluster. Ranks of one region become neighbours.")
@setting("--run-dir", shows="a folder in /tmp", help="Folder for the workers' files and output.")
@setting("--max-workers", type=int, shows="256", help="Maximum number of workers, of all jobs together.")
@setting(
    "--keep-workers/--end-workers",
    default=None,
    shows="end-workers",
    help="Leave the workers running when this process ends.",
)
@setting("--echo/--no-echo", default=None, shows="no-echo", help="Print the workers' output here instead of to files.")
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
    drain_s = settings.end_grace_s + DRAIN_AFTER_GRACE_S
    sys.exit(run(lambda stop: main(settings, stop, alone=True), drain_s=drain_s))


@click.command(
    epilog=examples(
        "tradewind worker --job mnist                      a worker on this machine, for cluster `local`",
        "tradewind worker --job mnist --cluster lab --slots 8 --address 10.0.0.7",
        after=PROCESS_HELP,
    )
)
@nats_option
@setting("--job", shows="required", help="Name of the job that the worker works for.")
@setting("--cluster", shows="local", help="Cluster of the worker. Its cluster-controller reports the worker.")
@setting("--uid", shows="random", help="First part of the worker's id.")
@setting("--slots", type=int, shows="1", help="Number of ranks that the worker can hold.")
@setting("--python", shows="the job's, else this one", help="Python interpreter of the trainers.")
@setting("--region", shows="none", help="Region of the worker. Ranks of one region become neighbours.")
@setting("--zone", shows="none", help="Zone of the worker in its region.")
@setting("--node", shows="the host name", help="Name of the worker's machine.")
@setting("--address", shows="127.0.0.1", help="Address at which ranks of other workers reach this machine.")
@setting("--run-dir", shows="a folder in /tmp", help="Folder for the worker's files.")
@setting("--notice-s", type=float, shows="15", help="Seconds from SIGTERM to the end of the machine.")
@setting("--orphan-s", type=float, shows="600", help="Seconds without the bus before the worker exits.")
@setting("--echo/--no-echo", default=None, shows="no-echo", help="Print the trainers' output here, too.")
@setting(
    "--external-host/--own-host",
    default=None,
    shows="own-host",
    help="Wait for a host from another container instead of starting one.",
)
@setting(
    "--host-file",
    metavar="FILE",
    shows="the one that is installed beside this agent",
    help="The host's __main__.py, which forks the trainers.",
)
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
