"""Options and help of the commands that start all that they need on this machine: `demo` and `run`."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import click

from runtime.errors import UserError
from tradewind.cli.options import Number, Whole
from tradewind.cli.torchrun_options import given_of, torchrun_options
from tradewind.demo import FLEET, SCRIPT

CLOUD_S = 100.0
"""In less a run may be over before it was told all: a master may take ten seconds to see that a zone is empty."""
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


class Nodes(NamedTuple):
    """torchrun's MIN:MAX."""

    least: int
    most: int


def _nodes(context: click.Context, parameter: click.Parameter, value: str) -> Nodes:
    match = NNODES.match(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is neither a number of at least 1 nor MIN:MAX.", context, parameter)
    return Nodes(int(match["min"] or 1), int(match["max"]))


def _ranks(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """A number, or one of torchrun's words for it."""
    if value.isdigit() and int(value) > 0:
        return int(value)
    gpus = len([*Path("/dev").glob("nvidia[0-9]*")])
    if value == "gpu" and not gpus:
        raise click.BadParameter("there is no GPU on this machine.", context, parameter)
    if value not in ("gpu", "cpu", "auto"):
        raise click.BadParameter(f"{value!r} is neither a number of at least 1 nor cpu, gpu, auto.", context, parameter)
    return gpus if gpus and value != "cpu" else os.cpu_count() or 1


def _split(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """As a shell would."""
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
  tradewind run --workers 2:4 train.py                goes on with 2, 3 or 4 of them
  tradewind run --nproc-per-node 4 -m my.train        4 ranks on one worker, as with torchrun
""",
)
@click.option(
    "--workers", "--nnodes", callback=_nodes, default="1", metavar="[MIN:]N", help="Workers on this machine.  [1]"
)
@click.option("--min-workers", type=Whole(min=1), help="Keep training with as few as this.  [MIN, else 1]")
@click.option("--nproc-per-node", callback=_ranks, default="1", metavar="K", help="Ranks on each worker.  [1]")
@click.option(
    "--max-failures",
    "--max-restarts",
    type=Whole(min=0),
    default=0,
    help="How often the script may fail and is started again; lost workers do not count.  [0]",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as with `python -m`.")
@click.option(
    "--restart-args",
    callback=_split,
    multiple=True,
    metavar="ARGS",
    help="Arguments that SCRIPT gets when it is started again, such as --init_from=resume; may be repeated.",
)
@click.option(
    "--checkpoint-path",
    metavar="PATH",
    help="A file or folder that SCRIPT changes with each checkpoint: then workers that wait are admitted.",
)
@click.option(
    "--preload",
    callback=_modules,
    multiple=True,
    metavar="MODULES",
    help="Modules to import once for all restarts, such as transformers,lightning; may be repeated.",
)
@click.option("--python", help="The interpreter that has the script's packages.  [this one]")
@click.option("--standalone", is_flag=True, hidden=True, help="As torchrun has it: always so.")
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
    """Run SCRIPT with ARGS on this machine, as torchrun would, and start all that it needs.

    Each rank's lines come with its rank in front; lines of Tradewind's own go to standard error. The exit code is that
    of the script.
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
