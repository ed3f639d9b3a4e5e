"""`tradewind demo`: a real small model trains through a kill and a join, and every claim about it is checked."""

import os
import sys
from pathlib import Path

import click

from runtime.errors import UserError

SCRIPT = Path(__file__).parents[3] / "examples" / "char_transformer" / "train.py"


@click.command(
    epilog="""\b
Examples:
  tradewind demo
  tradewind demo --steps 600 --workers 6
  tradewind demo --json | jq .pauses

\b
It starts its own nats-server, or uses the one at TRADEWIND_NATS_URL. The exit code is 0 only if all checks passed.
"""
)
@click.option("--steps", type=click.IntRange(min=30), default=300, show_default=True, help="Steps to train.")
@click.option(
    "--workers", type=click.IntRange(min=2, max=64), default=4, show_default=True, help="Workers to begin with."
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on standard output.")
@click.option("--keep", is_flag=True, help="Keep the folder with logs, checkpoint and state.")
def demo(steps: int, workers: int, as_json: bool, keep: bool) -> None:
    """Train a small model on this machine; kill a worker on the way; report what happened, and check it."""
    if not SCRIPT.is_file():
        raise UserError(
            "The demonstration's training script comes with the repository, not with the installed package.",
            "make demo, in a clone of the repository",
        )
    from runtime.process import run
    from tradewind.cli.demo.stage import Demonstration
    from tradewind.cli.jobs.oneshot import quiet_logs

    quiet_logs()
    demonstration = Demonstration(SCRIPT, steps=steps, workers=workers, as_json=as_json, keep=keep)
    sys.exit(run(lambda stop: demonstration.result(os.environ, stop)))
