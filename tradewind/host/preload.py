"""Preloading: the host imports the modules of `launch.preload` once, before it forks trainers.

No failure here ends the host: it skips a module that cannot be imported, and the script itself shows the error.
Trainers print the problems in their own output, where the job's owner reads them.
"""

import importlib
import os
import sys
import threading
import types
from pathlib import Path
from typing import Final

from tradewind.protocol.variables import PRELOAD

_THREADS: Final = Path("/proc/self/task")

remarks: list[str] = []
"""Problems that trainers print at their start."""


def preload() -> None:
    for name in filter(None, os.environ.get(PRELOAD, "").split(",")):
        remark = _import(name)
        if remark is not None:
            remarks.append(f"tradewind: launch.preload: {remark}")
            print(remarks[-1], file=sys.stderr, flush=True)


def show_remarks() -> None:
    for remark in remarks:
        print(remark, file=sys.stderr)


def _import(name: str) -> str | None:
    """Imports a module. Returns a message if that fails or has a side effect that breaks forks."""
    threads, named, had_cuda = _thread_ids(), set(threading.enumerate()), _cuda_has_begun()
    with _Attempt() as attempt:
        importlib.import_module(name)
    if attempt.error is not None:
        error = f"{type(attempt.error).__name__}: {attempt.error}".partition("\n")[0]
        return cannot_import(name, error)
    if _cuda_has_begun() and not had_cuda:
        return f"importing {name} starts CUDA, so no rank can use a GPU: remove it from launch.preload"
    started = len(_thread_ids() - threads)
    if started:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread not in named)
        return starts_threads(name, started, names)
    return None


def cannot_import(module: str, error: str) -> str:
    return f"cannot import {module} ({error}); the script starts without it"


def starts_threads(module: str, started: int, names: str) -> str:
    """The problem of a module whose import starts threads. `names` are those of the Python threads among them."""
    which = f" ({names})" if names else ""
    return f"importing {module} starts {started} thread(s){which}, which forked ranks do not have"


class _Attempt:
    """Catches the error of an import of the job's module, which may be any exception."""

    error: BaseException | None = None

    def __enter__(self) -> "_Attempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: types.TracebackType | None
    ) -> bool:
        self.error = error
        return isinstance(error, Exception | SystemExit)


def _thread_ids() -> set[str]:
    return {path.name for path in _THREADS.iterdir()}


def _cuda_has_begun() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() is True
