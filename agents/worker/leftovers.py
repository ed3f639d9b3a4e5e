"""The record of a worker's processes on disk, from which the next agent or controller ends what a dead agent left.

Each worker has a folder with a record of its processes and a lock that its agent holds until it ends. A folder whose
lock is free belongs to a dead agent. A process is identified by its pid *and* its start time, or by the worker's id in
its environment, or by the worker's cgroup, so that a reused pid is never killed.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from agents.worker.containment import Containment
from messages.decoding import Undecodable, decode, encode_readable
from messages.ids import WorkerId
from runtime import proc
from runtime.cgroups import Cgroup, is_of_worker
from runtime.children import send, signal_group, start_time_of, wait_exit
from runtime.errors import UserError
from runtime.logs import Once, logger

WORKER_VARIABLE = "TRADEWIND_WORKER"
"""Variable in the environment of the host and of all it forks: the worker's id."""
RECORD = "processes.json"
LOCK = "lock"
CLAIM_S = 3.0
END_S = 5.0


class ProcessId(Struct, frozen=True):
    pid: int
    started: int
    """Clock ticks since boot."""


class Left(Struct, frozen=True):
    """The record of a worker."""

    worker: WorkerId
    boot: str
    processes: tuple[ProcessId, ...] = ()
    cgroup: str = ""
    """The path of the cgroup that the host is in; empty if there is none."""


class WorkerFolder:
    """The locked folder of a worker. No other agent can use it while this process lives."""

    def __init__(self, path: Path, lock: int, worker: WorkerId) -> None:
        self.path = path
        self.containment: Containment | None = None
        """None if this process has other descendants, too."""
        self._lock = lock
        self._log_once = Once()
        self._left = Left(worker=worker, boot=proc.boot_id())
        self._write()

    @property
    def left(self) -> Left:
        """The record of what runs now."""
        return self._left

    def contain(self, containment: Containment) -> None:
        self.containment = containment
        self._left = msgspec.structs.replace(self._left, cgroup=containment.path)
        self._write()

    def pids(self) -> list[int]:
        """The pids of the host and its trainers."""
        return [process.pid for process in self._left.processes]

    def started(self, pid: int) -> None:
        ticks = start_time_of(pid)
        if ticks is not None:
            self._keep((*self._left.processes, ProcessId(pid, ticks)))

    def ended(self, pid: int) -> None:
        self._keep(tuple(process for process in self._left.processes if process.pid != pid))

    def remove(self) -> None:
        if self.containment is not None:
            self.containment.remove()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _keep(self, processes: tuple[ProcessId, ...]) -> None:
        """Replaces the record. A full disk does not end training: the environments also identify the processes."""
        self._left = msgspec.structs.replace(self._left, processes=processes)
        try:
            self._write()
        except OSError as error:
            if self._log_once(error.errno):
                logger().warning("record_not_written", folder=str(self.path), error=str(error))

    def _write(self) -> None:
        fresh = self.path / f"{RECORD}.new"
        fresh.write_bytes(encode_readable(self._left, Left))
        fresh.replace(self.path / RECORD)


async def claim(run_dir: Path, uid: str, worker: WorkerId) -> WorkerFolder:
    """Locks the worker's folder, and ends everything that dead agents left running in this run folder."""
    path = run_dir / uid
    lock = await _lock_soon(path)
    if lock is None:
        raise UserError(f"A worker with uid {uid} is already running here", "leave out --uid, or give another")
    await end_dead(read_left(path))
    for folder in _others(run_dir, path):
        await _sweep(folder)
    return WorkerFolder(path, lock, worker)


async def end_dead(left: Left | None) -> None:
    """Ends everything that a dead agent left, including processes that only its cgroup identifies."""
    if left is not None:
        await asyncio.to_thread(_end_cgroup, left)
    await end_left(left)


def end_cgroups(run_dir: Path) -> None:
    """Ends the cgroups of all workers in this run folder, dead or alive."""
    for record in run_dir.glob(f"*/{RECORD}"):
        left = read_left(record.parent)
        if left is not None:
            _end_cgroup(left)


async def end_left(left: Left | None) -> None:
    """Kills what is left of a dead agent and waits until it is gone."""
    if left is None:
        return
    found = await asyncio.to_thread(_found, left)
    if not found:
        return
    logger().warning("leftovers_ended", of=left.worker, processes=found)
    for pid in found:
        # Trainers and hosts lead their own process groups; other processes with the mark may not.
        if not signal_group(pid, signal.SIGKILL):
            send([pid], signal.SIGKILL)
    async with asyncio.TaskGroup() as waits:
        for pid in found:
            waits.create_task(wait_exit(pid, END_S), name=f"leftover-{pid}")


def kill_left(left: Left) -> None:
    """Kills the recorded processes at once and does not wait."""
    for process in left.processes:
        if start_time_of(process.pid) == process.started:
            signal_group(process.pid, signal.SIGKILL)


async def _sweep(folder: Path) -> None:
    lock = _try_lock(folder)
    if lock is None:
        return
    try:
        await end_dead(read_left(folder))
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _others(run_dir: Path, own: Path) -> list[Path]:
    return [folder for folder in run_dir.iterdir() if folder != own and (folder / RECORD).is_file()]


async def _lock_soon(path: Path) -> int | None:
    """Locks the folder. Another agent may hold the lock for a moment, to find dead agents."""
    until_s = time.monotonic() + CLAIM_S
    while True:
        _make(path)
        lock = _try_lock(path)
        if lock is not None or time.monotonic() > until_s:
            return lock
        await asyncio.sleep(0.05)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"Cannot create {folder}: {error.strerror}", "give another folder with --run-dir") from error


def _try_lock(folder: Path) -> int | None:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino == (folder / LOCK).stat().st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def read_left(folder: Path) -> Left | None:
    """Reads the record. None if it is missing or unreadable: the environments also identify the processes."""
    try:
        return decode((folder / RECORD).read_bytes(), Left)
    except FileNotFoundError:
        return None
    except Undecodable as error:
        logger().warning("record_unreadable", folder=str(folder), error=str(error))
        return None


def _end_cgroup(left: Left) -> None:
    cgroup = Cgroup(Path(left.cgroup))
    if left.boot == proc.boot_id() and is_of_worker(cgroup, left.worker):
        cgroup.end()


def _found(left: Left) -> list[int]:
    recorded = [process.pid for process in left.processes if start_time_of(process.pid) == process.started]
    known = recorded if left.boot == proc.boot_id() else []
    return sorted({*known, *_carrying(left.worker)} - {os.getpid()})


def _carrying(worker: WorkerId) -> list[int]:
    return proc.carrying(f"{WORKER_VARIABLE}={worker}".encode()) if worker else []
