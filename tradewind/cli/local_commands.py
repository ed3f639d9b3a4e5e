"""Options and help of `demo` and `run`, which start everything that they need on this machine."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import click

from runtime.errors import UserError
from tradewind.cli.failures import reporter
from tradewind.cli.options import Number, Whole
from tradewind.cli.torchrun_options import given_of, torchrun_options
from tradewind.demo import FLEET, SCRIPT

CLOUD_S = 100.0
"""Shortest run with a cloud, in seconds: the master needs up to ten seconds to find a zone out of machines."""
LOCAL_S = 30.0
NNODES = re.compile(r"^(?:(?P<min>[1-9]\d*):)?(?P<max>[1-9]\d*)$")


@click.command(
    epilog="""\b
Examples:
  tradewind demo
  tradewind demo --steps 600 --workers 6
  tradewind demo --local
  tradewind demo --json | jq .changes

\b
The command starts its own nats-server, or uses the one at TRADEWIND_NATS_URL. The exit code is 1 if a check fails.
"""
)
@click.option(
    "--cloud/--local",
    default=True,
    show_default=True,
    help="Use machines of a simulated cloud with two regions, or plain processes.",
)
@click.option("--steps", type=Whole(min=60), default=300, show_default=True, help="Steps to train.")
@click.option("--workers", type=Whole(min=2, max=12), default=4, show_default=True, help="Workers at the start.")
@click.option(
    "--seconds",
    type=Number(max=600),
    show_default=f"{CLOUD_S:g}, also the minimum; with --local {LOCAL_S:g}",
    help="Shortest duration of all steps together, in seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, also errors.")
@click.option("--keep", is_flag=True, help="Do not delete the folder with logs, checkpoint and state.")
def demo(cloud: bool, steps: int, workers: int, seconds: float | None, as_json: bool, keep: bool) -> None:
    """Train a small model on this machine, remove and add machines, report what happened and check it."""
    if not SCRIPT.is_file():
        raise UserError(
            "The training script of the demonstration is in the repository, not in the installed package.",
            "run `make demo` in a clone of the repository",
        )
    needed_s = CLOUD_S if cloud else LOCAL_S
    if seconds is not None and not seconds >= needed_s:
        raise UserError(
            f"{seconds:g} s is too short for all checks; use {needed_s:g} to 600 s.",
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
    sys.exit(run(lambda stop: demonstration.result(os.environ, stop), report=reporter(as_json=as_json)))


class Nodes(NamedTuple):
    """The numbers of torchrun's MIN:MAX."""

    least: int
    most: int


def _nodes(context: click.Context, parameter: click.Parameter, value: str) -> Nodes:
    match = NNODES.match(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is neither a number of at least 1 nor MIN:MAX.", context, parameter)
    return Nodes(int(match["min"] or 1), int(match["max"]))


def _ranks(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """The ranks of each worker, from a number or one of torchrun's words."""
    if value.isdigit() and int(value) > 0:
        return int(value)
    gpus = len([*Path("/dev").glob("nvidia[0-9]*")])
    if value == "gpu" and not gpus:
        raise click.BadParameter("there is no GPU on this machine.", context, parameter)
    if value not in ("gpu", "cpu", "auto"):
        raise click.BadParameter(f"{value!r} is neither a number of at least 1 nor cpu, gpu, auto.", context, parameter)
    return gpus if gpus and value != "cpu" else os.cpu_count() or 1


def _split(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Splits the arguments as a shell does."""
    try:
        return tuple(part for value in values for part in shlex.split(value))
    except ValueError as error:
        raise click.BadParameter(f"{' '.join(values)!r} cannot be split: {error}.", context, parameter) from error


def _modules(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    from messages.jobs import MODULE

    names = tuple(name for value in values for name in value.split(","))
    for name in names:
        if not MODULE.match(name):
            raise click.BadParameter(f"{name!r} is not the name of a module.", context, parameter)
    return names


@click.command(
    context_settings={
        "allow_interspersed_args": False,
        # torchrun spells its options with underscores and with dashes.
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
    epilog="""\b
Examples:
  tradewind run train.py --epochs 3
  tradewind run --workers 4 train.py --epochs 3       one rank on each of 4 workers
  tradewind run --workers 2:4 train.py                trains with 2, 3 or 4 workers
  tradewind run --nproc-per-node 4 -m my.train        4 ranks on one worker, as with torchrun
""",
)
@click.option("--workers", "--nnodes", callback=_nodes, default="1", metavar="[MIN:]N", help="Workers on this machine.")
@click.option(
    "--min-workers", type=Whole(min=1), show_default="MIN, else 1", help="Continue with this number of workers or more."
)
@click.option("--nproc-per-node", callback=_ranks, default="1", metavar="K", help="Ranks on each worker.")
@click.option(
    "--max-failures",
    "--max-restarts",
    type=Whole(min=0),
    default=0,
    help="Failures of the script after which it restarts. Lost workers do not count.",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as in `python -m`.")
@click.option(
    "--restart-args",
    callback=_split,
    multiple=True,
    metavar="ARGS",
    show_default="none",
    help="More arguments for SCRIPT when it restarts, such as --init_from=resume; may be repeated.",
)
@click.option(
    "--checkpoint-path",
    metavar="PATH",
    show_default="none",
    help="File or folder that SCRIPT changes with each checkpoint. Waiting workers join after a change.",
)
@click.option(
    "--preload",
    callback=_modules,
    multiple=True,
    metavar="MODULES",
    show_default="none",
    help="Modules to import once for all restarts, such as transformers,lightning; may be repeated.",
)
@click.option("--python", show_default="this one", help="Interpreter with the script's packages.")
@click.option("--standalone", is_flag=True, hidden=True, help="No effect: a run is always standalone.")
@torchrun_options
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    workers: Nodes,
    min_workers: int | None,
    nproc_per_node: int,
    max_failures: int,
    module: bool,
    restart_args: tuple[str, ...],
    checkpoint_path: str | None,
    preload: tuple[str, ...],
    python: str | None,
    standalone: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGS on this machine, as torchrun would, and start everything that it needs.

    Each line of a rank begins with its rank. Lines of Tradewind go to standard error. The exit code is that of the
    script.
    """
    from tradewind.cli.run import RestartOptions, run_here, spec_of
    from tradewind.terminal import output

    torchrun = given_of(click.get_current_context(), workers.most, module=module)
    spec = spec_of(
        script,
        args,
        module=module,
        python=python,
        most=workers.most,
        least=min_workers or workers.least,
        ranks=nproc_per_node,
        failures=max_failures,
        environ=os.environ,
        program=torchrun.program,
        restart=RestartOptions(restart_args, checkpoint_path, preload),
    )
    for note in torchrun.notes:
        output.say(note)
    sys.exit(run_here(torchrun.applied_to(spec), os.environ, torchrun.outputs))
