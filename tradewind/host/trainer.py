"""How a forked process becomes a trainer: its script runs as with `python script.py`.

`detach` separates the process from the host, `become` runs the script. The host's main module calls `become` at its top
level, so that the interpreter itself ends the process: it joins threads, runs exit handlers, flushes output, and exits
with the script's exit code.
"""

import builtins
import ctypes
import importlib.machinery
import io
import os
import pkgutil
import runpy
import signal
import stat
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from tradewind import progress
from tradewind.host import stacks
from tradewind.host.gpus import with_driver
from tradewind.host.preload import show_remarks
from tradewind.host.warm import reset_for_fork
from tradewind.protocol.host import TrainerSpec

NOT_REGULAR: Final = "not a regular file"
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Newborn:
    """The spec and the open files of a process that was just forked."""

    spec: TrainerSpec
    progress_fd: int
    stacks_fd: int


def detach(host_pid: int, stdout: int, stderr: int) -> None:
    """Separates a fork from the host. Call it right after the fork with all signals blocked; it unblocks them."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != host_pid:
        os._exit(1)  # the host died before the line above
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for ours, standard in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(ours, standard)
        os.close(ours)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)  # writes each line at once, in one piece
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become(newborn: Newborn) -> None:
    spec = newborn.spec
    if spec.inherit:
        spec = replace(spec, env=with_driver({**os.environ, **spec.env}))
    os.environ.clear()
    os.environ.update(spec.env)
    try:
        os.chdir(spec.cwd)
    except OSError as error:
        _give_up(cannot_enter(spec.cwd, _reason(error)))
    if spec.program and spec.script is not None:
        _execute(spec.script, spec)
    progress.connect(newborn.progress_fd)
    stacks.write_on_signal(newborn.stacks_fd)
    reset_for_fork(spec.env)
    if spec.env.get("RANK") == "0":
        show_remarks()
    try:
        _run(spec)
    except BaseException as error:
        _hide_our_frames(error)
        raise


def cannot_enter(folder: str, reason: str) -> str:
    return f"tradewind: cannot change to folder {folder!r}: {reason}"


def _execute(program: str, spec: TrainerSpec) -> NoReturn:
    """Executes the program. It first resets the signals that Python ignores: the program would inherit that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(program, [program, *spec.argv], spec.env)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _give_up(
            f"tradewind: cannot execute {program!r}: [Errno {error.errno}] {error.strerror}",
            code=127 if missing else 126,
        )


def _run(spec: TrainerSpec) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # multiprocessing pickles by the second name
    if spec.module is not None:
        sys.argv = ["-m", *spec.argv]
        sys.orig_argv[:] = [sys.executable, "-m", spec.module, *spec.argv]
        _search_first(str(Path.cwd()), spec.env)
        _run_module(spec.module, alter_argv=True)
    if spec.script is not None:
        sys.argv = [spec.script, *spec.argv]
        sys.orig_argv[:] = [sys.executable, spec.script, *spec.argv]
        _run_script(main, Path(spec.script).absolute(), spec.env)


def _run_script(main: types.ModuleType, script: Path, env: Mapping[str, str]) -> None:
    _check_script(script)
    if pkgutil.get_importer(str(script)) is not None:  # a folder or an archive with a __main__.py inside
        _search_first(str(script), env)
        _run_module("__main__", alter_argv=False)
        return
    try:
        source = script.read_bytes()
    except OSError as error:
        _cannot_open(script, _reason(error))
    _search_first(str(script.resolve().parent), env)
    loader = importlib.machinery.SourceFileLoader("__main__", str(script))
    vars(main).update(__file__=str(script), __cached__=None, __loader__=loader)
    exec(compile(source, str(script), "exec", dont_inherit=True), vars(main))


def _check_script(script: Path) -> None:
    """Checks the script before it is opened: reading a pipe or a device may never end."""
    try:
        mode = script.stat().st_mode
    except OSError as error:
        _cannot_open(script, _reason(error))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        _cannot_open(script, NOT_REGULAR)


def _cannot_open(script: Path, why: str) -> NoReturn:
    _give_up(f"{sys.executable}: can't open file {str(script)!r}: {why}")


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"


def _run_module(module: str, *, alter_argv: bool) -> None:
    # The interpreter itself calls this for -m: it has the same errors, and keeps __main__ until the process ends.
    vars(runpy)["_run_module_as_main"](module, alter_argv)


def _search_first(folder: str, env: Mapping[str, str]) -> None:
    """Sets the import path as Python does at its start: the script's folder, PYTHONPATH, then the old path."""
    asked = [str(Path(entry).absolute()) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [folder, *(entry for entry in asked if entry not in sys.path), *sys.path]


def _give_up(message: str, code: int = 2) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)


def _hide_our_frames(error: BaseException) -> None:
    """Removes this module's frames from the traceback that the interpreter prints."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, _: types.TracebackType | None) -> None:
        hook(kind, error.with_traceback(shown), shown)

    sys.excepthook = show
