"""`tradewind run`: torchrun's drop-in on one machine, with nothing else to start."""

import difflib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from messages.ids import is_name
from messages.jobs import Failures, JobSpec, Launch, Workers
from runtime.errors import UserError

NNODES = re.compile(r"^(?:(?P<min>\d+):)?(?P<max>\d+)$")


class Nodes(NamedTuple):
    """torchrun's MIN:MAX."""

    least: int
    most: int


def _nodes(context: click.Context, parameter: click.Parameter, value: str) -> Nodes:
    match = NNODES.match(value)
    if match is None or int(match["max"]) < 1:
        raise click.BadParameter(f"{value!r} is neither a number of at least 1 nor MIN:MAX.", context, parameter)
    most = int(match["max"])
    return Nodes(int(match["min"] or most), most)


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
@click.option("--min-workers", type=click.IntRange(min=1), help="Go on with so few of them.  [MIN, else 1]")
@click.option("--nproc-per-node", callback=_ranks, default="1", metavar="K", help="Ranks on each worker.  [1]")
@click.option(
    "--max-failures",
    "--max-restarts",
    type=click.IntRange(min=0),
    default=0,
    help="How often the script may fail and is started again; lost workers do not count.  [0]",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as with `python -m`.")
@click.option("--python", help="The interpreter that has the script's packages.  [this one]")
@click.option("--standalone", is_flag=True, hidden=True, help="As torchrun has it: always so.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    workers: Nodes,
    min_workers: int | None,
    nproc_per_node: int,
    max_failures: int,
    module: bool,
    python: str | None,
    standalone: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with ARGS on this machine, as torchrun would, and start all that it needs.

    Each rank's lines come with its rank in front; lines of Tradewind's own go to standard error. The exit code is that
    of the script.
    """
    least = min_workers if min_workers is not None else workers.least if workers.least < workers.most else 1
    if least > workers.most:
        raise click.UsageError(f"--min-workers {least} is more than --workers {workers.most}.")
    launch = Launch(
        script=None if module else script,
        module=script if module else None,
        args=args,
        workdir=str(Path.cwd()),
        python=interpreter(python or sys.executable),
    )
    check_script(launch)
    spec = JobSpec(
        name=job_name(script),
        launch=launch,
        workers=Workers(max=workers.most, min=least, ranks=nproc_per_node),
        failures=Failures(max=max_failures),
    )
    sys.exit(run_here(spec, os.environ))


def run_here(spec: JobSpec, environ: Mapping[str, str]) -> int:
    from runtime.process import run as run_process
    from tradewind.cli.oneshot import quiet_logs
    from tradewind.cli.running import LocalRun

    quiet_logs()
    return run_process(lambda stop: LocalRun(spec, environ, stop).result())


def check_script(launch: Launch) -> None:
    """What can be known before anything is started."""
    if launch.script is None:
        return
    script = Path(launch.workdir or ".", launch.script)
    if not script.is_file():
        near = difflib.get_close_matches(script.name, [one.name for one in script.parent.glob("*.py")], n=1)
        hint = f"tradewind run {Path(launch.script).with_name(near[0])}" if near else "tradewind run --help"
        raise UserError(f"There is no script {launch.script}.", hint)


def interpreter(name: str) -> str:
    """Its path, as workers see it; links are kept, for they are how an environment is found."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"There is no interpreter {name}.", 'tradewind run --python "$(which python3)" …')
    return str(Path(found).absolute())


def job_name(script: str) -> str:
    """From the script's file name, with an ending that makes it new."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.rpartition(".")[2].lower() or Path(script).stem.lower())
    name = f"{words.strip('-')[:40].strip('-') or 'job'}-{secrets.token_hex(2)}"
    return name if is_name(name) else f"job-{secrets.token_hex(2)}"
