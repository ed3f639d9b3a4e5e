"""The job that `tradewind run` makes of its arguments, and what can be known to be wrong before anything is started."""

import difflib
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from messages.jobs import Failures, JobSpec, Launch, Workers
from runtime.errors import UserError
from runtime.paths import current_folder, expanded


class RestartOptions(NamedTuple):
    """What scripts without the SDK may need to be started again well."""

    restart_args: tuple[str, ...] = ()
    checkpoint_path: str | None = None
    preload: tuple[str, ...] = ()


NO_RESTART_OPTIONS = RestartOptions()


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
    restart: RestartOptions = NO_RESTART_OPTIONS,
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
    path = restart.checkpoint_path
    return JobSpec(
        name=job_name(script.rpartition(".")[2] if module else Path(script).stem),
        launch=Launch(
            script=None if module else script,
            module=script if module else None,
            args=args,
            workdir=str(current_folder()),
            python=interpreter(python or sys.executable),
            env=one_thread_each(most * ranks, environ),
            restart_args=restart.restart_args,
            checkpoint_path=str(expanded(path, "--checkpoint-path")) if path is not None else None,
            preload=restart.preload,
        ),
        workers=Workers(max=most, min=least, ranks=ranks),
        failures=Failures(max=failures),
    )


def check_script(name: str) -> None:
    script = Path(name)
    try:
        mode = script.stat().st_mode
    except FileNotFoundError:
        near = difflib.get_close_matches(script.name, [one.name for one in script.parent.glob("*.py")], n=1)
        hint = f"tradewind run {script.with_name(near[0])}" if near else "tradewind run --help"
        raise UserError(f"There is no script {name}.", hint) from None
    except OSError as error:
        raise UserError(f"The script {name} cannot be read: {error.strerror}.", "tradewind run --help") from None
    if stat.S_ISDIR(mode):
        raise UserError(f"{name} is a folder, not a script.", f"tradewind run {script / 'train.py'}")
    if not stat.S_ISREG(mode):
        raise UserError(f"{name} is not a regular file, so it is no script.", "tradewind run --help")


def check_program(name: str) -> None:
    if shutil.which(name) is None:
        missing = not Path(name).exists()
        why = f"There is no program {name}." if missing else f"{name} cannot be executed."
        raise UserError(why, "tradewind run --help" if missing else f"chmod +x {name}")


def one_thread_each(ranks: int, environ: Mapping[str, str]) -> dict[str, str]:
    """As torchrun does for several ranks on a machine: together they would ask for more threads than it has cores."""
    return {"OMP_NUM_THREADS": "1"} if ranks > 1 and "OMP_NUM_THREADS" not in environ else {}


def gpu_warning(workers: int, ranks: int, gpus: int) -> str | None:
    """The GPUs of a machine are divided among its workers; with too few, some ranks share one."""
    if workers == 1 or gpus == 0 or workers * ranks <= gpus:
        return None
    shared = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    return (
        f"{workers * ranks} ranks share {shared} of this machine, which NCCL refuses; "
        f"use at most {max(1, gpus // ranks)} workers, or a script that computes with gloo"
    )


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
