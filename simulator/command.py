"""Options and help of `tradewind simulator`. The simulator itself is imported when it starts."""

import os
import sys
from functools import partial

import click

from runtime.setting_option import SettingOption

setting = partial(click.option, cls=SettingOption, prefix="TRADEWIND_SIMULATOR_")


@click.command(
    epilog="""
\b
Examples:
  tradewind simulator --write-credentials key.json --speed 20
  tradewind simulator --trace examples/traces/two_regions.csv
  tradewind simulator --part region --region us-central1
  tradewind simulator --part cloud --region us-central1=http://127.0.0.1:8910
\b
A flag wins over its variable. More settings have a variable and no flag: docs/simulator.md lists them.
"""
)
@setting("--part", type=click.Choice(["all", "cloud", "region"]), shows="all", help="The part to run here.")
@setting(
    "--region",
    "regions",
    multiple=True,
    shows="us-central1, europe-west4",
    help="A region to run here, or NAME=URL for one elsewhere; may be repeated.",
)
@setting("--host", shows="127.0.0.1", help="Address on which it listens.")
@setting("--grpc-port", type=int, shows="8900", help="Port of GKE's API.")
@setting("--http-port", type=int, shows="8901", help="Port of Compute's API, tokens and control.")
@setting("--public-url", shows="host and port", help="URL at which others reach the HTTP port.")
@setting("--region-port", type=int, shows="8910 for a region alone, else any", help="Port of the first region.")
@setting("--region-advertise-url", shows="host and port", help="URL at which others reach the region.")
@setting("--region-run-dir", shows="a temporary folder", help="Folder for files and logs of pods.")
@setting("--projects", shows="tradewind", help="Projects, with commas between.")
@setting("--write-credentials", metavar="FILE", shows="no file", help="Write a service account's key for clients.")
@setting("--auth/--no-auth", default=None, shows="auth", help="Calls need a token.")
@setting("--token-s", type=float, shows="3600", help="Seconds for which a token is valid.")
@setting("--seed", type=int, shows="0", help="Seed of every name and every choice.")
@setting("--speed", type=float, shows="1", help="Seconds of the cloud in a real second.")
@setting("--operation-s", type=float, shows="20", help="Shortest duration of an operation, in seconds.")
@setting("--cluster-s", type=float, shows="240", help="Seconds until a cluster's API answers.")
@setting("--boot-s", type=float, shows="60", help="Seconds until a node is ready.")
@setting("--notice-s", type=float, shows="30", help="Real seconds between a notice and the preemption.")
@setting("--trace", shows="none", help="A file, or ZONE/ACCELERATOR=FILE; several with commas between.")
@setting("--generate/--no-generate", default=None, shows="no-generate", help="Change the market by the seed.")
@setting("--lifetime-s", type=float, shows="0", help="Mean life of a spot node; 0: until capacity ends.")
@setting("--default-capacity", type=int, shows="64", help="Accelerators in a zone that no trace describes.")
@setting("--quotas", shows="none", help="us-central1:PREEMPTIBLE_NVIDIA_L4_GPUS=8, with commas between.")
def simulator(regions: tuple[str, ...], **flags: object) -> None:
    """Start a stand-in cloud: GKE, Kubernetes, a spot market, and pods that are processes of this machine."""
    from runtime.logs import configure
    from runtime.process import run
    from simulator.main import main, read_simulator_settings

    settings = read_simulator_settings(os.environ, {**flags, "regions": ",".join(regions) or None})
    configure("simulator", part=settings.part)
    sys.exit(run(lambda stop: main(settings, stop)))
