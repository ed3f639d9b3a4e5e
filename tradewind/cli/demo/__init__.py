"""`tradewind demo`: a real small model trains through losses and joins, and every claim about it is checked."""

import os
import sys
from pathlib import Path

import click

from runtime.errors import UserError

EXAMPLES = Path(__file__).parents[3] / "examples"
SCRIPT = EXAMPLES / "char_transformer" / "train.py"
FLEET = EXAMPLES / "fleet-simulator.yaml"


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
@click.option("--steps", type=click.IntRange(min=30), default=300, show_default=True, help="Steps to train.")
@click.option(
    "--workers", type=click.IntRange(min=2, max=64), default=4, show_default=True, help="Workers to begin with."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=10, max=600),
    default=30.0,
    show_default=True,
    help="What the steps take together, at least.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on standard output.")
@click.option("--keep", is_flag=True, help="Keep the folder with logs, checkpoint and state.")
def demo(cloud: bool, steps: int, workers: int, seconds: float, as_json: bool, keep: bool) -> None:
    """Train a small model on this machine; take machines away from it; report what happened, and check it."""
    if not SCRIPT.is_file():
        raise UserError(
            "The demonstration's training script comes with the repository, not with the installed package.",
            "make demo, in a clone of the repository",
        )
    from runtime.process import run
    from tradewind.cli.demo.stage import Demonstration
    from tradewind.cli.jobs.oneshot import quiet_logs

    quiet_logs()
    demonstration = Demonstration(
        SCRIPT,
        steps=steps,
        workers=workers,
        seconds=seconds,
        as_json=as_json,
        keep=keep,
        fleet=FLEET.read_text() if cloud else None,
    )
    sys.exit(run(lambda stop: demonstration.result(os.environ, stop)))
