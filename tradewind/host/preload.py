"""Modules that the job wants imported once, before its trainers are forked: `launch.preload`.

Nothing here ends the host: a module that cannot be imported is left out, and the script itself shows the error. What is
wrong is kept for the trainers, who print it where the job's owner reads.
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
"""What trainers print at their start."""


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
    """What is wrong with it."""
    threads, named, had_cuda = _thread_ids(), set(threading.enumerate()), _cuda_has_begun()
    with _Attempt() as attempt:
        importlib.import_module(name)
    if attempt.error is not None:
        error = f"{type(attempt.error).__name__}: {attempt.error}".partition("\n")[0]
        return f"{name} cannot be imported ({error}); the script is started without it"
    if _cuda_has_begun() and not had_cuda:
        return f"{name} starts CUDA when it is imported, so no rank can use a GPU: remove it from launch.preload"
    started = len(_thread_ids() - threads)
    if started:
        names = ", ".join(thread.name for thread in threading.enumerate() if thread not in named)
        which = f" ({names})" if names else ""
        return f"{name} starts {started} thread(s){which} when it is imported; ranks are forked without them"
    return None


class _Attempt:
    """Keeps what the import of somebody's module raised; that may be anything."""

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
