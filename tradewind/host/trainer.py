"""What a forked process does to become a trainer: as far as its script can tell, `python script.py` was started.

`detach` cuts it from the host, `become` runs the script. `become` is called from the top of the host's main module and
returns (or raises) there, so that the interpreter itself ends the process: threads joined, exit handlers run, output
flushed, and the exit code that the script would have had.
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
from tradewind.host.warm import start_anew
from tradewind.protocol.host import TrainerSpec

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Newborn:
    """What a process holds that was just forked."""

    spec: TrainerSpec
    progress_fd: int
    stacks_fd: int


def detach(host_pid: int, stdout: int, stderr: int) -> None:
    """Called right after the fork with all signals blocked: one that arrives meanwhile acts when all is in place."""
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
            stream.reconfigure(line_buffering=True, write_through=False)  # each line at once, and in one piece
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
        _give_up(f"tradewind: can't change to folder {spec.cwd!r}: {_reason(error)}")
    if spec.program and spec.script is not None:
        _execute(spec.script, spec)
    progress.connect(newborn.progress_fd)
    stacks.write_on_signal(newborn.stacks_fd)
    start_anew(spec.env)
    if spec.env.get("RANK") == "0":
        show_remarks()
    try:
        _run(spec)
    except BaseException as error:
        _hide_our_frames(error)
        raise


def _execute(program: str, spec: TrainerSpec) -> NoReturn:
    """Becomes the program. What Python ignores, the program would too: those signals are as they were before."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(program, [program, *spec.argv], spec.env)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        _give_up(
            f"tradewind: can't execute {program!r}: [Errno {error.errno}] {error.strerror}",
            code=127 if missing else 126,
        )


def _run(spec: TrainerSpec) -> None:
    main = types.ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # the second is what multiprocessing pickles by
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
    """Before it is opened: a pipe would be waited for, a device never read to its end."""
    try:
        mode = script.stat().st_mode
    except OSError as error:
        _cannot_open(script, _reason(error))
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        _cannot_open(script, "it is not a regular file")


def _cannot_open(script: Path, why: str) -> NoReturn:
    _give_up(f"{sys.executable}: can't open file {str(script)!r}: {why}")


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"


def _run_module(module: str, *, alter_argv: bool) -> None:
    # What the interpreter itself calls for -m: the same errors, and __main__ stays in place until the process ends.
    vars(runpy)["_run_module_as_main"](module, alter_argv)


def _search_first(folder: str, env: Mapping[str, str]) -> None:
    """Sets the import path as at a start of Python: the script's folder, PYTHONPATH, then what was there."""
    asked = [str(Path(entry).absolute()) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [folder, *(entry for entry in asked if entry not in sys.path), *sys.path]


def _give_up(sentence: str, code: int = 2) -> NoReturn:
    print(sentence, file=sys.stderr)
    raise SystemExit(code)


def _hide_our_frames(error: BaseException) -> None:
    """Has the error shown, when it reaches the interpreter, as if the script had been started by it."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, _: types.TracebackType | None) -> None:
        hook(kind, error.with_traceback(shown), shown)

    sys.excepthook = show
