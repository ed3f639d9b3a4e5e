"""`tradewind demo`: a real small model trains through losses and joins, and every claim about it is checked."""

import os
import sys

import click

from runtime.errors import UserError
from tradewind.cli.options import Number, Whole
from tradewind.demo import FLEET, SCRIPT

CLOUD_S = 100.0
"""In less a run may be over before it was told all: a master may take ten seconds to see that a zone is empty."""
LOCAL_S = 30.0


@click.command(
    epilog="""\b
Examples:
  tradewind demo
  tradewind demo --steps 600 --workers 6
  tradewind demo --local
  tradewind demo --json | jq .changes

\b
It starts its own nats-server, or uses the one at TRADEWIND_NATS_URL. The exit code is 0 only if all checks passed.
"""
)
@click.option(
    "--cloud/--local",
    default=True,
    show_default=True,
    help="Machines of a simulated cloud with two regions, or plain processes.",
)
@click.option("--steps", type=Whole(min=60), default=300, show_default=True, help="Steps to train.")
@click.option("--workers", type=Whole(min=2, max=12), default=4, show_default=True, help="Workers to begin with.")
@click.option(
    "--seconds",
    type=Number(max=600),
    help=f"How long all steps take together, at least.  [default and least: {CLOUD_S:g}, with --local {LOCAL_S:g}]",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on standard output.")
@click.option("--keep", is_flag=True, help="Keep the folder with logs, checkpoint and state.")
def demo(cloud: bool, steps: int, workers: int, seconds: float | None, as_json: bool, keep: bool) -> None:
    """Train a small model on this machine; take machines away from it; report what happened, and check it."""
    if not SCRIPT.is_file():
        raise UserError(
            "The demonstration's training script comes with the repository, not with the installed package.",
            "make demo, in a clone of the repository",
        )
    needed_s = CLOUD_S if cloud else LOCAL_S
    if seconds is not None and not seconds >= needed_s:
        raise UserError(
            f"{seconds:g} s is too short to show everything that is checked; use {needed_s:g} to 600 s.",
            f"tradewind demo{'' if cloud else ' --local'} --seconds {needed_s:g}",
        )
    from runtime.process import run
    from tradewind.demo.stage import Demonstration
    from tradewind.terminal.foreground import quiet_logs

    quiet_logs()
    demonstration = Demonstration(
        SCRIPT,
        steps=steps,
        workers=workers,
        seconds=seconds if seconds is not None else needed_s,
        as_json=as_json,
        keep=keep,
        fleet=FLEET.read_text() if cloud else None,
    )
    sys.exit(run(lambda stop: demonstration.result(os.environ, stop)))
