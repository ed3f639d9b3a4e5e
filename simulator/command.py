"""`tradewind simulator`: its options and help. The simulator is loaded when it starts."""

import os
import sys

import click


@click.command(
    epilog="""
\b
Examples:
  tradewind simulator --write-credentials key.json --speed 20
  tradewind simulator --trace examples/traces/two_regions.csv
  tradewind simulator --part region --region us-central1
  tradewind simulator --part cloud --region us-central1=http://127.0.0.1:8910
\b
Every setting is also a variable, and there are more than options: docs/simulator.md has them all.
--speed is TRADEWIND_SIMULATOR_SPEED, and so on. A flag wins.
"""
)
@click.option("--part", type=click.Choice(["all", "cloud", "region"]), help="What of it runs here.  [all]")
@click.option(
    "--region", "regions", multiple=True, help="A region to run here, or NAME=URL for one elsewhere; more than once."
)
@click.option("--host", help="Where it listens.  [127.0.0.1]")
@click.option("--grpc-port", type=int, help="Of GKE's API.  [8900]")
@click.option("--http-port", type=int, help="Of Compute's API, tokens and control.  [8901]")
@click.option("--public-url", help="Where others reach the HTTP port, if not there.")
@click.option("--region-port", type=int, help="Of the region, or of the first.  [8910 for a region alone, else any]")
@click.option("--region-advertise-url", help="Where others reach the region, if not there.")
@click.option("--region-run-dir", help="Where pods have their folders and logs.  [a temporary one]")
@click.option("--projects", help="With commas between.  [tradewind]")
@click.option("--write-credentials", metavar="FILE", help="Write a service account's key for clients to this file.")
@click.option("--auth/--no-auth", default=None, help="Whether calls need a token.  [auth]")
@click.option("--token-s", type=float, help="How long a token is good for.  [3600]")
@click.option("--seed", type=int, help="Of every name and every choice.  [0]")
@click.option("--speed", type=float, help="Seconds of the cloud in a real one.  [1]")
@click.option("--operation-s", type=float, help="The least that an operation takes.  [20]")
@click.option("--cluster-s", type=float, help="Until a cluster's API answers.  [240]")
@click.option("--boot-s", type=float, help="Until a node is ready.  [60]")
@click.option("--notice-s", type=float, help="What a preempted node is given, in real seconds.  [30]")
@click.option("--trace", help="A file, or ZONE/ACCELERATOR=FILE; several with commas between.")
@click.option("--generate/--no-generate", default=None, help="Move the market by the seed.  [no-generate]")
@click.option("--lifetime-s", type=float, help="The mean life of a spot node; 0: as long as there is capacity.  [0]")
@click.option("--default-capacity", type=int, help="Accelerators in a zone that no trace tells of.  [64]")
@click.option("--quotas", help="us-central1:PREEMPTIBLE_NVIDIA_L4_GPUS=8, with commas between.")
def simulator(regions: tuple[str, ...], **flags: object) -> None:
    """Start a stand-in cloud: GKE, Kubernetes, a spot market, and machines that are processes of this one."""
    from runtime.logs import configure
    from runtime.process import run
    from simulator.main import main, read_simulator_settings

    settings = read_simulator_settings(os.environ, {**flags, "regions": ",".join(regions) or None})
    configure("simulator", part=settings.part)
    sys.exit(run(lambda stop: main(settings, stop)))
