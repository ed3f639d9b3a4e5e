"""`tradewind master`: the process that knows every job, decides its worlds and serves the API."""

import os
import sys

import click

from tradewind.cli.options import ROLE_HELP, examples, nats_option


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
