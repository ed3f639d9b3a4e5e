"""The job that `tradewind run` makes of its arguments, and what can be known to be wrong before anything is started."""

import difflib
import re
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from messages.jobs import Failures, JobSpec, Launch, Workers
from runtime.errors import UserError


def spec_of(
    script: str,
    args: tuple[str, ...],
    *,
    module: bool,
    python: str | None,
    most: int,
    least: int,
    ranks: int,
    failures: int,
    environ: Mapping[str, str],
    program: bool = False,
) -> JobSpec:
    if least > most:
        raise UserError(
            f"The minimum ({least} workers) is larger than the maximum ({most}).",
            f"tradewind run --workers {least} …",
        )
    if program:
        check_program(script)
    elif not module:
        check_script(script)
    return JobSpec(
        name=job_name(script.rpartition(".")[2] if module else Path(script).stem),
        launch=Launch(
            script=None if module else script,
            module=script if module else None,
            args=args,
            workdir=str(Path.cwd()),
            python=interpreter(python or sys.executable),
            env=one_thread_each(most * ranks, environ),
        ),
        workers=Workers(max=most, min=least, ranks=ranks),
        failures=Failures(max=failures),
    )


def check_script(name: str) -> None:
    script = Path(name)
    if script.is_dir():
        raise UserError(f"{name} is a folder, not a script.", f"tradewind run {script / 'train.py'}")
    if not script.is_file():
        near = difflib.get_close_matches(script.name, [one.name for one in script.parent.glob("*.py")], n=1)
        hint = f"tradewind run {script.with_name(near[0])}" if near else "tradewind run --help"
        raise UserError(f"There is no script {name}.", hint)


def check_program(name: str) -> None:
    if shutil.which(name) is None:
        missing = not Path(name).exists()
        why = f"There is no program {name}." if missing else f"{name} cannot be executed."
        raise UserError(why, "tradewind run --help" if missing else f"chmod +x {name}")


def one_thread_each(ranks: int, environ: Mapping[str, str]) -> dict[str, str]:
    """As torchrun does for several ranks on a machine: together they would ask for more threads than it has cores."""
    return {"OMP_NUM_THREADS": "1"} if ranks > 1 and "OMP_NUM_THREADS" not in environ else {}


def interpreter(name: str) -> str:
    """Its path, as workers see it; links are kept, for they are how an environment is found."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"There is no interpreter {name}.", 'tradewind run --python "$(which python3)" …')
    return str(Path(found).absolute())


def job_name(title: str) -> str:
    """With an ending that makes it new."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-")
    return f"{words or 'job'}-{secrets.token_hex(2)}"
