"""The local machine: the processes of a place, and the GPUs that workers share.

Processes are found by a mark in their environment, never by the pid alone, because the system reuses pids. Processes
without a mark that a dead agent leaves are in its cgroup, or become children of this process, which is a subreaper.

CUDA_VISIBLE_DEVICES shows a worker as many GPUs as it has ranks, so that `cuda:LOCAL_RANK` is a different GPU in each
worker. A restarted controller reads a worker's GPUs from the environment of its process.
"""

import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from runtime import cgroups, proc

MARK = "TRADEWIND_PLACE"
"""Environment variable of all processes of a place; its value is the uid."""
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"

Gpus = tuple[str, ...]


def birth_of(pid: int) -> str | None:
    """Returns what distinguishes this process from a later one with its pid; None if it is gone or dead."""
    stat = proc.stat(pid)
    return None if stat is None or stat.is_dead else f"{proc.boot_id()}/{stat.start_ticks}"


def carries(pid: int, uid: str) -> bool:
    """True if this process is the worker-agent of the place, not one that the agent started."""
    return _mark(uid) in proc.environ(pid) and _is_reported(pid, uid)


def find_agent(uid: str) -> int | None:
    return next((pid for pid in proc.pids() if birth_of(pid) is not None and carries(pid, uid)), None)


def of_place(uid: str, leader: int | None) -> list[int]:
    """Returns all processes of a place, in any session, and those of its agent's session if that is known."""
    in_session = set() if leader is None else {pid for pid in proc.pids() if _is_in_session(pid, leader)}
    return sorted(in_session.union(proc.carrying(_mark(uid))))


def end_cgroups(uid: str) -> None:
    """Ends the processes in the cgroups of this place's agents."""
    for cgroup in cgroups.find_of_workers(uid):
        cgroup.end()


def send(pid: int, birth: str, number: signal.Signals) -> bool:
    """Sends a signal to exactly this process. Returns False if it is gone."""
    if birth_of(pid) != birth:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _is_in_session(pid: int, leader: int) -> bool:
    stat = proc.stat(pid)
    return stat is not None and stat.session == leader and not stat.is_dead


def _mark(uid: str) -> bytes:
    return f"{MARK}={uid}".encode()


def _is_reported(pid: int, uid: str) -> bool:
    return (b"--uid", uid.encode()) in itertools.pairwise(proc.arguments(pid))


def machine_gpus(count: int | None, environ: Mapping[str, str], devices: Path = Path("/dev")) -> Gpus:
    """Returns the machine's GPUs: as many as the settings give, else those that this process may see, else all."""
    given = environ.get(GPU_VARIABLE)
    if count is None and given is not None:
        names = [name.strip() for name in given.split(",")]
        return tuple(names[: names.index("-1")] if "-1" in names else filter(None, names))
    return tuple(str(index) for index in range(len([*devices.glob("nvidia[0-9]*")]) if count is None else count))


def process_gpus(pid: int) -> Gpus:
    """Returns the GPUs in the environment of a worker."""
    prefix = f"{GPU_VARIABLE}=".encode()
    found = next((part for part in proc.environ(pid) if part.startswith(prefix)), prefix)
    return tuple(filter(None, found.removeprefix(prefix).decode(errors="replace").split(",")))


def share_gpus(gpus: Gpus, held: Iterable[Gpus], ranks: int) -> Gpus:
    """Chooses the GPUs that the fewest workers use, in their order; none if there are fewer GPUs than ranks."""
    if ranks > len(gpus):
        return ()
    holders = Counter(gpu for each in held for gpu in each)
    free_first = sorted(gpus, key=lambda gpu: (holders[gpu], gpus.index(gpu)))[:ranks]
    return tuple(sorted(free_first, key=gpus.index))
