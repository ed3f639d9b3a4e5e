"""`tradewind worker`: the agent that holds ranks of a job and starts their trainers."""

import os

import click

from tradewind.cli.options import ROLE_HELP, examples, nats_option


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
