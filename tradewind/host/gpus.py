"""The GPUs of a host: how its processes find the driver, and a check before the host reports ready.

A pod with GPUs sets TRADEWIND_GPUS and TRADEWIND_DRIVER_FOLDER. The node's driver is mounted in a folder that ordinary
images do not search.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Final

from tradewind.protocol.variables import DRIVER_FOLDER, GPUS

CHECK_S: Final = 60.0
"""Timeout in seconds for starting CUDA on all GPUs."""
END_S: Final = 5.0
"""Seconds that the process of the check may take to die after SIGKILL."""
_DRIVER_LIBRARY: Final = "libcuda.so.1"
_OUR_IMAGE: Final = "build ours with --build-arg TORCH=cuda"


def with_driver(env: Mapping[str, str]) -> dict[str, str]:
    """Adds the driver's folders to the paths of an environment, behind those of the image and the job."""
    folder = env.get(DRIVER_FOLDER)
    if not folder:
        return dict(env)
    added = {"LD_LIBRARY_PATH": f"{folder}/lib64", "PATH": f"{folder}/bin"}
    return {**env, **{name: _with(env.get(name, ""), path) for name, path in added.items()}}


def restart_with_driver() -> None:
    """Executes this process again if the driver is not in its paths: the loader reads paths only at the start."""
    env = with_driver(os.environ)
    if env != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)


def why_unfit(check_s: float = CHECK_S) -> str | None:
    """Returns why this worker cannot train on the GPUs in TRADEWIND_GPUS; None if it can.

    Another process starts CUDA: this one forks trainers, and forks cannot use a CUDA that was started before.
    """
    given = os.environ.get(GPUS, "")
    wanted = int(given) if given.isdecimal() else 0
    if wanted == 0:
        return None
    import torch

    what = f"torch {torch.__version__}"
    needed = f"and each worker of the job needs {_gpus(wanted)} (pod.gpu)"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{what} is a build without CUDA, {needed}: set pod.image to an image with a CUDA build, or {_OUR_IMAGE}"
    found = _ask(wanted, check_s)
    if found is None:
        return cuda_hangs(wanted, check_s)
    seen, error = found
    if error:
        return f"{what} finds {_gpus(seen)}, {needed}: {error}; use a node with a driver that fits this torch"
    if seen < wanted:
        return f"{what} finds {_gpus(seen)}, {needed}: choose machines with more GPUs, or fewer ranks (workers.ranks)"
    return None


def cuda_hangs(wanted: int, check_s: float) -> str:
    needed = f"and each worker of the job needs {_gpus(wanted)} (pod.gpu)"
    return f"CUDA did not start within {check_s:g} s, {needed}: the driver or a GPU of the node hangs"


def _ask(wanted: int, check_s: float) -> tuple[int, str] | None:
    """Returns the number of GPUs that torch finds, and an error; None after the timeout."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(_probe(wanted)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        said = _read(reading, time.monotonic() + check_s)
    finally:
        os.close(reading)
        _end(pid)
    if said is None:
        return None
    if not said:
        return 0, "the process that started CUDA crashed"
    seen, error = json.loads(said)
    return int(seen), str(error)


def _end(pid: int) -> None:
    """Kills the process of the check. A hung driver may keep it alive; then it is left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until_s = time.monotonic() + END_S
    while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until_s:
        time.sleep(0.005)


def _read(fd: int, until_s: float) -> bytes | None:
    """Reads until the other end closes; None after the timeout."""
    said = b""
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, until_s - time.monotonic()))
        if not ready:
            return None
        part = os.read(fd, 65536)
        if not part:
            return said
        said += part


def _probe(wanted: int) -> tuple[int, str]:
    """Starts CUDA on all GPUs. The process of the check calls it."""
    import torch

    seen = 0
    try:
        seen = int(torch.cuda.device_count())
        for index in range(min(seen, wanted)):
            torch.zeros(1, device=f"cuda:{index}")
    except (RuntimeError, AssertionError, OSError, ValueError) as error:
        return seen, str(error).partition("\n")[0][:300]
    return seen, "" if seen else _why_no_driver()


def _why_no_driver() -> str:
    try:
        ctypes.CDLL(_DRIVER_LIBRARY)
    except OSError as error:
        return f"cannot load the driver ({error})"
    return ""


def _gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def _with(paths: str, path: str) -> str:
    known = [part for part in paths.split(os.pathsep) if part]
    return paths if path in known else os.pathsep.join([*known, path])
